//! The bucket of a key, and the names of its parts in Redis.

use std::time::Duration;

use redis::{Cmd, RedisWrite as _};

use super::protocol::ENDLESS;

/// How many buckets the keys are spread over. It is fixed: processes that counted differently
/// would not see each other's locks. Each bucket has one token counter.
pub(crate) const BUCKETS: usize = 16;

/// How many names a script has for each key.
pub(super) const NAMES_PER_KEY: usize = 6;

/// The bucket of a key: FNV-1a, so that it is the same in every process and version.
pub(super) fn bucket(key: &str) -> usize {
    let hash = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // The low bits of FNV depend on the low bits of the input alone; fold the high ones in.
    usize::try_from((hash ^ (hash >> 32)) % BUCKETS as u64).expect("less than BUCKETS")
}

/// The names of one namespace.
#[derive(Debug)]
pub(super) struct Names {
    namespace: String,
    /// What stands before and after the number of a bucket.
    before: String,
    after: &'static str,
}

impl Names {
    /// In a Cluster the namespace is the hash tag, so that all keys are in one slot.
    pub(super) fn new(namespace: &str, in_cluster: bool) -> Self {
        let (before, after) = match in_cluster {
            false => (format!("{namespace}:{{b"), "}:"),
            true => (format!("{{{namespace}}}:b"), ":"),
        };
        Self { namespace: namespace.to_owned(), before, after }
    }

    /// The prefix of a bucket's names. The hash tag comes first and the user's key last, so that
    /// names never collide, even if the key contains braces.
    fn prefix(&self, bucket: usize) -> String {
        format!("{}{bucket}{}", self.before, self.after)
    }

    /// The name under which the holder of a key is stored.
    pub(super) fn lock(&self, key: &str) -> String {
        format!("{}l:{key}", self.prefix(bucket(key)))
    }

    /// Warns of a value that no script of ours has written.
    pub(super) fn warn_endless(&self, key: &str, remaining: Duration) {
        if remaining == ENDLESS {
            tracing::warn!(%key, "lock in redis has no expiry{}", self.remedy(key));
        }
    }

    /// The end of a message about a stored value that is not a lock: the operator's remedy.
    pub(super) fn remedy(&self, key: &str) -> String {
        let name = self.lock(key);
        // `redis-cli` reads these escapes.
        let name = name.as_bytes().escape_ascii();
        format!("; another program wrote it: remove it by DEL \"{name}\"")
    }

    /// The remedy for WRONGTYPE: the error does not say which name of the key has another type.
    pub(super) fn remedy_for_type(&self, key: &str) -> String {
        let prefix = self.prefix(bucket(key));
        let (prefix, key) = (prefix.as_bytes().escape_ascii(), key.as_bytes().escape_ascii());
        format!(
            "; another program wrote one of its names: remove by DEL the one whose TYPE is not \
             string for \"{prefix}l:{key}\", \"{prefix}g:{key}\" and \"{prefix}t\", zset for \
             \"{prefix}f:{key}\" and \"{prefix}x\", or hash for \"{prefix}a:{key}\""
        )
    }

    /// A key that only shows that it was written.
    pub(super) fn mark(&self) -> String {
        format!("{}w", self.prefix(0))
    }

    /// What stands before a process in the name of its topic.
    pub(super) fn topics(&self) -> String {
        format!("{}:p:", self.namespace)
    }

    /// The topic of force-unlocks, which every process reads.
    pub(super) fn forced(&self) -> String {
        format!("{}:p:forced", self.namespace)
    }

    /// The pattern of `SCAN` for the locks of all keys that begin with `prefix`.
    pub(super) fn pattern(&self, prefix: &str) -> String {
        format!("{}*{}l:{}*", escaped(&self.before), self.after, escaped(prefix))
    }

    /// The key whose lock has this name.
    pub(super) fn key_of<'a>(&self, name: &'a [u8]) -> Option<&'a str> {
        let name = std::str::from_utf8(name).ok()?.strip_prefix(&self.before)?;
        let (bucket, rest) = name.split_once(self.after)?;
        let key = rest.strip_prefix("l:")?;
        (bucket.parse() == Ok(self::bucket(key))).then_some(key)
    }

    /// Adds the names that a script needs for a key.
    pub(super) fn add(&self, cmd: &mut Cmd, key: &str) {
        let prefix = self.prefix(bucket(key));
        for part in ["t", "x"] {
            cmd.write_arg_fmt(format_args!("{prefix}{part}"));
        }
        for part in ["l", "f", "a", "g"] {
            cmd.write_arg_fmt(format_args!("{prefix}{part}:{key}"));
        }
    }
}

/// The text as a pattern that matches it alone.
fn escaped(text: &str) -> String {
    let escape = |it: char| ['\\'].into_iter().filter(move |_| "*?[]\\^".contains(it)).chain([it]);
    text.chars().flat_map(escape).collect()
}

#[cfg(test)]
mod tests {
    use redis::Arg;

    use super::*;

    fn names_of(key: &str) -> Vec<String> {
        names_in(&Names::new("ns", false), key)
    }

    fn names_in(names: &Names, key: &str) -> Vec<String> {
        let mut cmd = Cmd::new();
        names.add(&mut cmd, key);
        let args = cmd.args_iter().map(|arg| match arg {
            Arg::Simple(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            _ => panic!("no cursor here"),
        });
        args.collect()
    }

    /// The text that Redis Cluster hashes, between the first braces.
    fn hash_tag(name: &str) -> &str {
        let after = &name[name.find('{').unwrap() + 1..];
        &after[..after.find('}').unwrap()]
    }

    #[test]
    fn everything_of_a_key_has_one_hash_tag() {
        for key in ["k", "{k}", "}{", "{}", "a{b}c", "{b3}", ":l:", "\u{1f512}", "\0\r\n"] {
            let names = names_of(key);
            assert_eq!(names.len(), NAMES_PER_KEY);
            assert!(names.iter().all(|name| hash_tag(name) == hash_tag(&names[0])), "{names:?}");
            assert!(names[2..].iter().all(|name| name.ends_with(key)), "{names:?}");
        }
    }

    #[test]
    fn hash_tag_in_a_cluster_is_the_namespace() {
        let names = Names::new("n s", true);
        for key in ["k", "{k}", "}{", "{}", "{b3}:l:t", ":l:"] {
            let found = names_in(&names, key);
            assert!(found.iter().all(|name| hash_tag(name) == "n s"), "{found:?}");
            assert_eq!(names.key_of(found[2].as_bytes()), Some(key));
            assert_eq!(names.key_of(found[3].as_bytes()), None);
        }
        assert_eq!(names.pattern("a*"), r"{n s}:b*:l:a\**");
    }

    #[test]
    fn no_two_names_of_any_keys_are_equal() {
        let keys = ["t", "x", "l:t", "f:t", "a:f:t", "", ":", "l", "{b0}:l:t"];
        let mut own: Vec<String> = keys.iter().flat_map(|key| names_of(key).split_off(2)).collect();
        let shared =
            (0..BUCKETS).flat_map(|n| [format!("ns:{{b{n}}}:t"), format!("ns:{{b{n}}}:x")]);
        own.extend(shared);
        let all = own.len();
        own.sort();
        own.dedup();
        assert_eq!(own.len(), all);
    }

    #[test]
    fn lock_name_is_read_as_its_key() {
        let names = Names::new("ns", false);
        for key in ["k", "}:l:", "{b3}:l:t", "a b", "\u{1f512}"] {
            let [_, _, lock, queue, ..] = &names_of(key)[..] else { panic!() };
            assert_eq!(names.lock(key), *lock);
            assert_eq!(names.key_of(lock.as_bytes()), Some(key));
            assert_eq!(names.key_of(queue.as_bytes()), None);
            assert_eq!(Names::new("n", false).key_of(lock.as_bytes()), None);
        }
        assert_eq!(names.key_of(b"ns:{b99}:l:k"), None);
        assert_eq!(names.key_of(b"ns:{b1}:l:\xff"), None);
        assert_eq!(Names::new("n*", false).pattern("a[?"), r"n\*:{b*}:l:a\[\?*");
    }

    #[test]
    fn similar_keys_spread_over_buckets() {
        let mut seen = [0_u32; BUCKETS];
        for number in 0..1600 {
            seen[bucket(&format!("orders/{number}"))] += 1;
        }
        assert!(seen.iter().all(|count| (50..200).contains(count)), "{seen:?}");
    }
}
