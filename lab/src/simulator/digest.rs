//! Digests of bytes and numbers, for comparing traces and tables.

/// A step of splitmix64.
pub(crate) const fn mixed(state: u64) -> u64 {
    let z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A digest of bytes, by four lanes that need not wait for each other.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut lanes = [1, 2, 3, 4];
    let mut rows = bytes.chunks_exact(32);
    for row in &mut rows {
        for (lane, word) in lanes.iter_mut().zip(row.as_chunks().0) {
            *lane = (*lane ^ u64::from_le_bytes(*word)).wrapping_mul(ODD).rotate_left(29);
        }
    }
    let rest = rows
        .remainder()
        .chunks(8)
        .map(|word| word.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
    lanes.into_iter().chain(rest).fold(bytes.len() as u64, |digest, word| mixed(digest ^ word))
}
