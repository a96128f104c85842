//! URLs of a Redis with a secret at every position, for tests that no message shows it.

/// The parts of the secret, which no message contains.
pub const SECRET_PARTS: [&str; 2] = ["hunter", "zyxwvu"];

/// URLs whose user, password or misplaced text is a secret with a character that ends a part of a
/// URL. No server listens at the address.
pub fn secret_urls() -> Vec<String> {
    let forms = [
        "redis://{}@127.0.0.1:1",
        "redis://:{}@127.0.0.1:1/0",
        "redis://u:{}@127.0.0.1:1?queue=none",
        "redis://{}:p@127.0.0.1:1",
        "redis://u:1/{}@127.0.0.1:1",
        "redis://u:1?{}@127.0.0.1:1",
        "rediss://u:{}@127.0.0.1:1",
        "redis:///{}@127.0.0.1:1",
        "redis:/{}@127.0.0.1:1",
        "redis:{}@127.0.0.1:1",
        "redis:/\t/{}@127.0.0.1:1",
        "redis://127.0.0.1:1/{}",
        "redis://127.0.0.1:1/0#{}",
        "{}@127.0.0.1:1",
    ];
    let between = ["/", "?", "#", "@", ":", "\\", "%", " ", "[", "]", ":1/", ":1?", ":1#", "%3F"];
    let [first, last] = SECRET_PARTS;
    let secrets = between.map(|between| format!("{first}{between}{last}"));
    let urls = |form: &str| secrets.clone().map(|secret| form.replace("{}", &secret));
    forms.into_iter().flat_map(urls).collect()
}
