use postcard::ser_flavors::Flavor;
use serde::Serialize;

/// Appends what it is given to a vector, by slices: postcard's own flavor for any collection does
/// so byte by byte.
struct Onto<'a>(&'a mut Vec<u8>);

impl Flavor for Onto<'_> {
    type Output = ();

    fn try_extend(&mut self, data: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(data);
        Ok(())
    }

    fn try_push(&mut self, data: u8) -> postcard::Result<()> {
        self.0.push(data);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// Appends the encoded `value` to `bytes`.
pub(in crate::member) fn encode_onto<T: Serialize + ?Sized>(bytes: &mut Vec<u8>, value: &T) {
    postcard::serialize_with_flavor(value, Onto(bytes)).expect("a vector takes every byte");
}
