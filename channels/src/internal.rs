//! What the crates of this workspace share. Not a part of the API: any release may change it.

#[cfg(feature = "net")]
pub mod net;
pub mod private_file;
pub mod process;
#[cfg(feature = "redis-client")]
pub mod redis_error;
#[cfg(feature = "redis-client")]
pub mod reply_limit;
pub mod url;
