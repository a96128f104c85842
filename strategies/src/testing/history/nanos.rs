//! Durations in files: whole nanoseconds.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(super) fn serialize<S: Serializer>(at: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    // 584 years; a wait or lease beyond is as good as for ever.
    u64::try_from(at.as_nanos()).unwrap_or(u64::MAX).serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    u64::deserialize(from).map(Duration::from_nanos)
}

pub(super) mod option {
    use super::{Deserialize, Deserializer, Duration, Serialize, Serializer};

    #[expect(clippy::ref_option, reason = "the signature is serde's")]
    pub(in super::super) fn serialize<S: Serializer>(
        at: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        at.map(|at| u64::try_from(at.as_nanos()).unwrap_or(u64::MAX)).serialize(serializer)
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(Duration::from_nanos))
    }
}
