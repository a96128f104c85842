//! stub
/// stub
#[derive(Debug)]
pub struct Hub;
/// stub
#[derive(Debug)]
pub struct Memory;
/// stub
#[derive(Debug)]
pub struct Faults;
