//! The Common Expression Language, evaluated within a budget.
//!
//! The shape of it, for callers:
//!
//! ```text
//! // 1. types: `Type: Clone`, cheap
//! let ty = Type::from_schema(&json_schema);                 // plain JSON: number => double, strings stay strings, unknown fields => dyn
//! let ty = Type::from_structural(&crd_schema, Root::Yes);   // CRD rules: date-time => timestamp, duration, byte, int-or-string => dyn,
//!                                                           // list types set/map, escaped field names; Root::Yes adds apiVersion, kind, metadata{name,generateName}
//!
//! // 2. compile once (parse + check + plan); `Program: Clone + Send + Sync`, cheap to clone
//! let env = Env::new().with("self", ty.clone()).with("oldSelf", ty.clone());   // Type::optional(ty) for optionalOldSelf
//! let program: Program = Program::compile("self.a <= self.b", &env)?;       // Err(Problems): Vec of {message, position, hint}, Display joins them
//! let program: Program = Program::condition("self.a <= self.b", &env)?;     // the same, and the result must be a bool
//! program.uses("oldSelf") -> bool                           // a transition rule?
//! program.output() -> &Type                                 // e.g. messageExpression must be Type::String
//!
//! // 3. values: `Value: Clone`, cheap (Arc)
//! let value: Value = ty.value(&json)?;                      // read JSON by its declared type (the way to make `self`)
//! let value = Value::from_json(&json)?;                     // read JSON without a type
//! let json = value.to_json()?;                              // back to JSON
//! Value::none(), Value::some(value)                         // optionals
//!
//! // 4. evaluate; what is spent adds up over evaluations that share the budget
//! let mut budget = Budget::new(1_000_000, 10 << 20);        // steps, bytes
//! let vars = Bindings::new().with("self", value).with("oldSelf", old);
//! program.evaluate(&vars, &mut budget) -> Result<Value, Error>
//! program.holds(&vars, &mut budget) -> Result<bool, Error>  // a result that is no bool is an error
//! error.exceeded() -> Option<Exceeded>                      // the budget ran out (Steps, Bytes); Display words errors as cel-go does: "no such key: x"
//! ```
