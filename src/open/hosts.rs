//! The hosts of a URL that names several, between commas.

/// The URL with its first host alone, and all hosts if there are several.
pub(super) fn split(text: &str) -> (String, Vec<String>) {
    let Some(begin) = text.find("//").map(|at| at + 2) else { return (text.into(), Vec::new()) };
    let end = text[begin..].find(['/', '?', '#']).map_or(text.len(), |at| begin + at);
    let hosts_at = text[begin..end].rfind('@').map_or(begin, |at| begin + at + 1);
    let hosts = &text[hosts_at..end];
    let Some((first, _)) = hosts.split_once(',') else { return (text.into(), Vec::new()) };
    let one = [&text[..hosts_at], first, &text[end..]].concat();
    (one, hosts.split(',').map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_between_login_and_path() {
        for (text, one, hosts) in [
            ("x://u:p,q@a:1,b:2,c/m?z=d,e", "x://u:p,q@a:1/m?z=d,e", &["a:1", "b:2", "c"][..]),
            ("x://a,b", "x://a", &["a", "b"]),
            ("x://a/b,c", "x://a/b,c", &[]),
            ("x:a,b", "x:a,b", &[]),
        ] {
            let (shown, split) = split(text);
            assert_eq!((shown.as_str(), split), (one, hosts.iter().map(|h| (*h).into()).collect()));
        }
    }
}
