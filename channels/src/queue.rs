//! The bounds of a channel's queues, as its options set them.

use crate::{ChannelError, FRAME_BYTES_MAX};

/// The greatest bound in frames.
pub(crate) const FRAMES_MAX: usize = 1 << 24;

/// Checks the bounds that a channel's options set.
pub(crate) fn check(outgoing: usize, incoming: usize, bytes: usize) -> Result<(), ChannelError> {
    for (field, frames) in [("outgoing_frames_max", outgoing), ("incoming_frames_max", incoming)] {
        if !(1..=FRAMES_MAX).contains(&frames) {
            let problem = format!("{frames} frames, the limit is 1 to {FRAMES_MAX}");
            return Err(ChannelError::InvalidOptions { field, problem });
        }
    }
    if bytes < FRAME_BYTES_MAX {
        let problem = format!("{bytes} bytes, the least is {FRAME_BYTES_MAX}");
        return Err(ChannelError::InvalidOptions { field: "queue_bytes_max", problem });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test that meets an error has failed

    use super::*;

    #[test]
    fn bound_outside_its_limits_is_refused_by_name() {
        let refused = |outgoing, incoming, bytes| match check(outgoing, incoming, bytes) {
            Err(ChannelError::InvalidOptions { field, .. }) => Some(field),
            other => other.map(|()| None).unwrap(),
        };
        assert_eq!(refused(1, 1, FRAME_BYTES_MAX), None);
        assert_eq!(refused(FRAMES_MAX, FRAMES_MAX, usize::MAX), None);
        assert_eq!(refused(0, 1, FRAME_BYTES_MAX), Some("outgoing_frames_max"));
        assert_eq!(refused(FRAMES_MAX + 1, 1, FRAME_BYTES_MAX), Some("outgoing_frames_max"));
        assert_eq!(refused(1, 0, FRAME_BYTES_MAX), Some("incoming_frames_max"));
        assert_eq!(refused(1, usize::MAX, FRAME_BYTES_MAX), Some("incoming_frames_max"));
        assert_eq!(refused(1, 1, FRAME_BYTES_MAX - 1), Some("queue_bytes_max"));
    }
}
