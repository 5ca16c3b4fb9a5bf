use cleat_runner::prelude::*;

#[activity]
async fn charge() -> Result<(), Never> {
    Ok(())
}

fn main() {}
