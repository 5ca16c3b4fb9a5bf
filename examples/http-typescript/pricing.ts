// Prices as a Cleat entity: one file, nothing but Node. Its types are written as JSDoc: Node runs it as it is, without a build, and
// TypeScript's compiler checks it (see the README):
//
//     CLEAT_KEY=s3cret PORT=8000 node --input-type=module < pricing.ts
//
import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const key = process.env.CLEAT_KEY ?? "";
const tolerance = 300; // seconds that clocks may differ

/** @typedef {{ price: number, history: number[] }} State */
/** @typedef {{ output?: unknown, state?: State, send?: { entity: string, id: string, method: string, input?: unknown, after?: string }[] }} Answer */

/** A no that is not worth another attempt. */
class Refused extends Error {
  /** @param {string} reason @param {string} detail */
  constructor(reason, detail) {
    super(detail);
    this.reason = reason;
  }
}

/**
 * Whether `t=<unix seconds>,v1=<hex>` is a signature of this body that is not too old.
 * @param {string} header @param {Buffer} body
 */
function isSigned(header, body) {
  const parts = Object.fromEntries(header.split(",").map((part) => part.split("=", 2)));
  const signed = createHmac("sha256", key).update(`${parts.t}.`).update(body).digest();
  const given = Buffer.from(parts.v1 ?? "", "hex");
  const fresh = Math.abs(Date.now() / 1000 - Number(parts.t)) < tolerance;
  return fresh && given.length === signed.length && timingSafeEqual(given, signed);
}

/** @type {Record<string, (input: any, state: State) => Answer>} */
const methods = {
  setPrice(input, state) {
    if (input.price <= 0) throw new Refused("InvalidPrice", "a price is more than nothing");
    return {
      output: { was: state.price },
      state: { price: input.price, history: [...state.history, input.price] },
      send: [{ entity: "audit", id: "prices", method: "note", input: input.price }],
    };
  },
  get: (_input, state) => ({ output: state.price }),
};

/** @param {import("node:http").IncomingHttpHeaders} headers @param {Buffer} body @returns {[number, object]} */
function answer(headers, body) {
  if (key && !isSigned(String(headers["cleat-signature"] ?? ""), body))
    return [401, { reason: "NotSigned", detail: "the signature is missing, wrong or too old" }];
  const name = String(headers["cleat-method"]);
  if (!Object.hasOwn(methods, name)) return [404, { reason: "UnknownMethod", detail: "there is no such method here" }];
  const { input, state } = JSON.parse(body.toString());
  try {
    return [200, methods[name](input, state)];
  } catch (error) {
    if (error instanceof Refused) return [409, { reason: error.reason, detail: error.message }];
    return [500, { reason: "Broken", detail: String(error) }];
  }
}

const server = createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const [status, value] = answer(request.headers, Buffer.concat(chunks));
  const kind = status === 200 ? "application/json" : "application/problem+json";
  response.writeHead(status, { "content-type": kind }).end(JSON.stringify(value));
});

server.listen(Number(process.env.PORT ?? 8000), process.env.HOST ?? "127.0.0.1", () => {
  const address = server.address();
  console.log(`listening on ${typeof address === "object" && address ? address.port : address}`);
});
