//! Settings of the listeners: TLS certificates and HTTP/3.

use transport::CertificatePaths;

use super::*;
use crate::server::Http3Config;

/// Reads the settings; `has_h3` is true if this build supports HTTP/3.
pub(super) fn serving(vars: &mut EnvReader, has_h3: bool) -> ServingConfig {
    let wants_h3 = vars.read("SERVICE_TRANSPORT", "h1h2", |text| transport(text, has_h3));
    let bind_addr = vars.read("SERVICE_H3_BIND_ADDR", "127.0.0.1:8443", address);
    let refused = vars.errors.len();
    let tls = pair(vars, "SERVICE_TLS_CERT_PATH", "SERVICE_TLS_KEY_PATH");
    let certificate = pair(vars, "SERVICE_H3_TLS_CERT_PATH", "SERVICE_H3_TLS_KEY_PATH");
    // HTTP/3 uses the certificate of HTTPS unless it has its own.
    let certificate = certificate.or_else(|| tls.clone()).filter(|_| wants_h3);
    if wants_h3 && certificate.is_none() && vars.errors.len() == refused {
        vars.refuse(
            "SERVICE_H3_TLS_CERT_PATH",
            "is not set, and SERVICE_TRANSPORT=h3 has no clear text: set it and \
             SERVICE_H3_TLS_KEY_PATH (`sightline certs dev` makes a pair to try with)",
        );
    }
    ServingConfig { tls, h3: certificate.map(|certificate| Http3Config { bind_addr, certificate }) }
}

fn pair(vars: &mut EnvReader, chain: &'static str, key: &'static str) -> Option<CertificatePaths> {
    let found = (vars.read(chain, "", optional_path), vars.read(key, "", optional_path));
    let (lacking, set) = match found {
        (Some(chain), Some(key)) => return Some(CertificatePaths { chain, key }),
        (None, None) => return None,
        (Some(_), None) => (key, chain),
        (None, Some(_)) => (chain, key),
    };
    vars.refuse(lacking, format!("is not set, and {set} is useless without it"));
    None
}

fn transport(text: &str, has_h3: bool) -> Result<bool, ValueError> {
    match text {
        "h1h2" => Ok(false),
        "h3" if has_h3 => Ok(true),
        "h3" => Err("asks for h3, which this binary was built without: build it with \
                     the feature h3-experimental or use h1h2"
            .into()),
        _ => Err("must be h1h2 or h3".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAIN: &str = "SERVICE_TLS_CERT_PATH";
    const KEY: &str = "SERVICE_TLS_KEY_PATH";
    const H3_CHAIN: &str = "SERVICE_H3_TLS_CERT_PATH";
    const H3_KEY: &str = "SERVICE_H3_TLS_KEY_PATH";
    const HTTP3: (&str, &str) = ("SERVICE_TRANSPORT", "h3");

    /// Resolves the settings, or returns the text of their errors.
    fn resolve(pairs: &[(&str, &str)], has_h3: bool) -> Result<ServingConfig, String> {
        let pairs = pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
        let mut vars = EnvReader::new(pairs);
        let serving = serving(&mut vars, has_h3);
        let errors: Vec<String> = vars.errors.iter().map(ToString::to_string).collect();
        if errors.is_empty() { Ok(serving) } else { Err(errors.join("\n")) }
    }

    fn files(chain: &str, key: &str) -> CertificatePaths {
        CertificatePaths { chain: chain.into(), key: key.into() }
    }

    #[test]
    fn each_listener_shows_its_own_pair_or_the_one_there_is() {
        let own = [(CHAIN, "c"), (KEY, "k"), (H3_CHAIN, "c3"), (H3_KEY, "k3"), HTTP3];
        let [clear, tls] = [None, Some(files("c", "k"))];
        let rows: [(&str, &[_], _, _); 5] = [
            ("clear text", &[], clear.clone(), None),
            ("TLS", &own[..2], tls.clone(), None),
            ("both with one", &[own[0], own[1], HTTP3], tls.clone(), Some(files("c", "k"))),
            ("both with their own", &own, tls, Some(files("c3", "k3"))),
            ("HTTP/3 beside clear text", &own[2..], clear, Some(files("c3", "k3"))),
        ];
        for (case, pairs, tls, h3) in rows {
            let serving = resolve(pairs, true).expect(case);
            assert_eq!(serving.tls, tls, "{case}");
            assert_eq!(serving.h3.map(|h3| h3.certificate), h3, "{case}");
        }
    }

    #[test]
    fn what_cannot_be_served_is_refused() {
        let rows: [(&[_], bool, &str); 6] = [
            (&[(CHAIN, "c")], true, "SERVICE_TLS_KEY_PATH is not set, and SERVICE_TLS_CERT_PATH"),
            (&[(KEY, "k")], true, "SERVICE_TLS_CERT_PATH is not set, and SERVICE_TLS_KEY_PATH"),
            (&[(H3_KEY, "k"), HTTP3], true, "SERVICE_H3_TLS_CERT_PATH is not set, and SERVICE_H3"),
            (&[HTTP3], true, "SERVICE_H3_TLS_CERT_PATH is not set, and SERVICE_TRANSPORT=h3 has"),
            (&[HTTP3], false, "SERVICE_TRANSPORT asks for h3, which this binary was built without"),
            (&[("SERVICE_TRANSPORT", "h4")], true, "SERVICE_TRANSPORT must be h1h2 or h3"),
        ];
        for (pairs, has_h3, told) in rows {
            let errors = resolve(pairs, has_h3).expect_err(told);
            assert!(errors.starts_with(told) && errors.lines().count() == 1, "{errors}");
        }
    }
}
