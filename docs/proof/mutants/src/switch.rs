/// Put at the end of the library that is mutated: which mutant this process runs with.
pub mod switch {
    use std::{
        fs::OpenOptions,
        io::Write,
        sync::{
            LazyLock,
            atomic::{AtomicBool, Ordering},
        },
    };

    static CHOSEN: LazyLock<usize> = LazyLock::new(|| {
        std::env::var("GAGGLE_MUTANT").map_or(0, |id| id.parse().expect("a number"))
    });
    static REACHED: [AtomicBool; 8192] = [const { AtomicBool::new(false) }; 8192];

    /// Whether the code at this place is mutant `id`. With none chosen, it is noted that the place
    /// was reached.
    #[inline(never)]
    pub fn on(id: usize) -> bool {
        match *CHOSEN {
            0 => {
                if !REACHED[id].swap(true, Ordering::Relaxed) {
                    note(id);
                }
                false
            }
            chosen => chosen == id,
        }
    }

    #[cold]
    fn note(id: usize) {
        if let Ok(path) = std::env::var("GAGGLE_REACHED") {
            let file = OpenOptions::new().create(true).append(true).open(path);
            let line = format!("{id}\n");
            file.and_then(|mut file| file.write_all(line.as_bytes())).expect("a file to note it in");
        }
    }
}
