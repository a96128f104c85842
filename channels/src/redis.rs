//! stub
/// stub
#[derive(Debug)]
pub struct Redis;
/// stub
#[derive(Debug)]
pub struct RedisOptions;
