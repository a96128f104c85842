//! A program without tokio, whose work blocks its thread: `cargo run --example blocking [URL]`

use std::{env, error::Error, thread, time::Duration};

use gaggle::{LockOptions, blocking};

fn main() -> Result<(), Box<dyn Error>> {
    let url = env::args().nth(1).unwrap_or_else(|| "local:".into());
    let locker = blocking::open(&url)?;

    // The work outlasts the lease, which the thread of the locker extends.
    let options = LockOptions::default().duration(Duration::from_millis(200));
    let guard = locker.lock_with("report", options).auto_extend(Duration::from_secs(60)).wait()?;
    for page in 1..=3 {
        if !guard.is_valid() {
            return Err("the lock was lost".into());
        }
        thread::sleep(Duration::from_millis(150)); // writes a page, with the token in each request
        println!("page {page}, token {}", guard.fencing_token());
    }
    guard.unlock()?;

    // The same as a section.
    let pages = locker.with_lock("report", LockOptions::default(), |_section| 3)?;
    println!("{pages} pages");
    locker.close()?;
    Ok(())
}
