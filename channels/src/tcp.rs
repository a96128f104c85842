//! stub
/// stub
#[derive(Debug)]
pub struct Tcp;
/// stub
#[derive(Debug)]
pub struct TcpOptions;
