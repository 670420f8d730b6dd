//! The sequence parameters of H.264 end with a flag for display hints (VUI), which the encoder leaves unset. This
//! module sets it, with a single hint that colors are BT.709: players would guess from the size.

/// Before each unit of a stream.
const START: [u8; 4] = [0, 0, 0, 1];
/// Lower bits of the first byte of sequence parameters.
const PARAMETERS: u8 = 7;
/// Aspect ratio and overscan unknown; video of unspecified format, limited range, with primaries, transfer and matrix of
/// number 1, which is BT.709; none of the other notes.
const NOTES: [(u32, u32); 8] = [
    (0b00, 2),
    (1, 1),
    (5, 3),
    (0b01, 2),
    (1, 8),
    (1, 8),
    (1, 8),
    (0b00_0000, 6),
];

/// The units of a frame, the sequence parameters among them with the note.
pub fn noted(units: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(units.len() + 8);
    for unit in split(units) {
        out.extend(START);
        match unit.first().map(|head| head & 31) == Some(PARAMETERS) {
            true => out.extend(with_note(unit).unwrap_or_else(|| unit.to_vec())),
            false => out.extend(unit),
        }
    }
    out
}

/// Units without their start codes.
fn split(stream: &[u8]) -> Vec<&[u8]> {
    let mut starts = Vec::new();
    let mut at = 0;
    while let Some(found) = stream.get(at..at + 3) {
        match found == &START[1..] {
            true => {
                starts.push((at, at + 3));
                at += 3;
            }
            false => at += 1,
        }
    }
    let ends = starts.iter().skip(1).map(|(begin, _)| *begin);
    let ends = ends.chain([stream.len()]);
    let units = starts.iter().zip(ends).map(|((_, begin), end)| {
        let unit = &stream[*begin..end];
        // The fourth byte of the next unit's start.
        unit.strip_suffix(&[0]).unwrap_or(unit)
    });
    units.collect()
}

/// `None` if the last flag is set already.
fn with_note(unit: &[u8]) -> Option<Vec<u8>> {
    let (head, body) = unit.split_first()?;
    let plain = without_escapes(body);
    let mut bits: Vec<bool> = plain
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1 == 1))
        .collect();
    // The end is a set bit, followed by unset ones.
    while !bits.pop()? {}
    if bits.pop()? {
        return None;
    }
    bits.push(true);
    for (value, count) in NOTES {
        bits.extend((0..count).rev().map(|bit| value >> bit & 1 == 1));
    }
    bits.push(true);
    let bytes = bits.chunks(8).map(|byte| {
        let set = byte.iter().enumerate().filter(|(_, bit)| **bit);
        set.fold(0_u8, |byte, (at, _)| byte | 0x80 >> at)
    });
    let mut out = vec![*head];
    out.extend(with_escapes(bytes));
    Some(out)
}

/// Removes emulation prevention: a 3 after two zeros, which keeps the bytes from looking like a start code.
fn without_escapes(bytes: &[u8]) -> Vec<u8> {
    let mut zeros = 0;
    let mut kept = Vec::with_capacity(bytes.len());
    for byte in bytes {
        if zeros >= 2 && *byte == 3 {
            zeros = 0;
            continue;
        }
        zeros = if *byte == 0 { zeros + 1 } else { 0 };
        kept.push(*byte);
    }
    kept
}

fn with_escapes(bytes: impl Iterator<Item = u8>) -> Vec<u8> {
    let mut zeros = 0;
    let mut out = Vec::new();
    for byte in bytes {
        if zeros >= 2 && byte <= 3 {
            out.push(3);
            zeros = 0;
        }
        zeros = if byte == 0 { zeros + 1 } else { 0 };
        out.push(byte);
    }
    out
}
