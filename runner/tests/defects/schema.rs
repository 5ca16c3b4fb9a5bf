//! What a fresh database has.

use sqlx::{Connection, PgConnection};

use crate::world::{Place, World};

#[tokio::test]
async fn the_schema_has_nothing_for_tests() {
    let database = cleat_testing::postgres::shared().await.unwrap().database().await.unwrap();
    let _world = World::new(Place::Postgres(database.clone())).await;
    let mut connection = PgConnection::connect(&database.url).await.unwrap();
    let names =
        "SELECT nspname || '.' || relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE nspname NOT LIKE 'pg_%' AND nspname <> 'information_schema'
         UNION SELECT nspname || '.' || proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
         WHERE nspname NOT LIKE 'pg_%' AND nspname <> 'information_schema'";
    let names: Vec<String> = sqlx::query_scalar(names).fetch_all(&mut connection).await.unwrap();
    assert!(names.contains(&"cleat.messages".to_owned()));
    let strange: Vec<_> =
        names.iter().filter(|name| !name.starts_with("cleat.") || name.contains("test")).collect();
    assert_eq!(strange, Vec::<&String>::new());
}
