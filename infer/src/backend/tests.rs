//! Tests of one backend and its state.

use super::*;
use scripted_model::{ScriptedServer, Step};

fn backend(url: &str) -> Arc<Backend> {
    let file = format!(
        "[[backends]]\nname = \"a\"\ntype = \"openai_compat\"\nbase_url = \"{url}\"\npriority = 1\n"
    );
    let configs = BackendConfig::parse("test.toml", &file, &|_| None).expect("the file is right");
    let curated = |name: &str| matches!(name, "house-7b" | "org/House-7B").then_some("house-7b");
    let trials = Arc::new(watch::Sender::new(0));
    Arc::new(Backend::new(configs.into_iter().next().expect("one"), curated, trials))
}

fn http() -> Arc<HttpClient> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has the default versions")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    Arc::new(HttpClient::new(tls).expect("a client"))
}

#[tokio::test]
async fn a_look_shuts_a_backend_for_all_where_it_is_away_and_nothing_else_was_shown() {
    let listed = || Step::json(200, &serde_json::json!({ "data": [] }));
    let rows: [(&str, Step, bool, bool); 4] = [
        ("it lists its models", listed(), false, false),
        ("its look fails too", Step::html(502), false, true),
        ("its look hangs", Step::hang(), false, false),
        ("another is answered meanwhile", Step::html(502).after(LISTING_TIMEOUT / 10), true, false),
    ];
    for (name, look, is_answered, is_shut) in rows {
        let server = ScriptedServer::with_steps(Vec::new(), Step::chat("a")).await;
        let server = server.expect("a server");
        server.answer_probes(look);
        let (backend, http) = (backend(&server.base_url()), http());
        let ask = |principal: &str, failure: Option<FailureKind>| {
            let permit = BreakerPermit::acquire(&backend, &principal.into()).expect("not shut");
            permit.record(failure.as_ref(), LISTING_TIMEOUT);
        };
        for _ in 0..5 {
            ask("alice", Some(FailureKind::http(500)));
        }
        backend.clear_suspects(&http);
        if is_answered {
            ask("bob", None);
        }
        let shut = || backend.breaker_state("bob", Instant::now()).is_some();
        let until = Instant::now() + LISTING_TIMEOUT * if is_shut { 10 } else { 1 };
        while !shut() && Instant::now() < until {
            sleep(LISTING_TIMEOUT / 400).await;
        }
        assert_eq!((shut(), server.probes()), (is_shut, 1), "{name}");
    }
}

#[test]
fn what_everybody_may_know_of_a_failure_holds_nothing_of_the_answer() {
    let backend = backend("http://127.0.0.1:9");
    let problem = "/label: \"a private word\" is not a number".to_owned();
    let failure = FailureKind::Schema { problem };
    assert!(
        failure.to_string().ends_with("output_schema: /label: \"a private word\" is not a number")
    );
    let permit = BreakerPermit::acquire(&backend, &"alice".into()).expect("it works");
    permit.record(Some(&failure), Duration::from_secs(1));
    let signal = backend.last_failure().expect("it failed").to_string();
    assert_eq!(signal, "gave an answer that does not match output_schema");
}

#[test]
fn a_timeout_is_the_backends_failure_if_its_caller_was_patient() {
    let backend = backend("http://127.0.0.1:9");
    for (seconds, is_told) in [(1, false), (5, true)] {
        let after = Duration::from_secs(seconds);
        for _ in 0..5 {
            let permit = BreakerPermit::acquire(&backend, &"alice".into()).expect("it works");
            permit.record(Some(&FailureKind::Timeout { after }), after);
        }
        let is_open = backend.breaker_state("alice", Instant::now()).is_some();
        let found = (backend.last_failure().is_some(), is_open);
        assert_eq!(found, (is_told, is_told), "after {seconds} s");
    }
}

#[tokio::test]
async fn a_backend_is_asked_by_the_name_that_it_lists() {
    let listed = |names: &[&str]| {
        let models: Vec<_> = names.iter().map(|id| serde_json::json!({ "id": id })).collect();
        Step::json(200, &serde_json::json!({ "data": models }))
    };
    let rows = [
        ("the makers'", listed(&["x", "org/House-7B"]), "house-7b", "org/House-7B", false),
        (
            "as it was given",
            listed(&["house-7b", "org/House-7B"]),
            "org/House-7B",
            "org/House-7B",
            false,
        ),
        ("the service's", listed(&["house-7b"]), "org/House-7B", "house-7b", false),
        ("one that nobody curated", listed(&["own/x"]), "own/x", "own/x", false),
        ("none of them", listed(&["own/x"]), "house-7b", "house-7b", true),
        ("nothing", listed(&[]), "house-7b", "house-7b", true),
        ("no list", Step::html(404), "house-7b", "house-7b", false),
    ];
    for (name, listing, model, asked_as, lacks) in rows {
        let server = ScriptedServer::with_steps(Vec::new(), Step::chat("a")).await;
        let server = server.expect("a server");
        server.answer_probes(listing);
        let backend = backend(&server.base_url());
        let http = http();
        let looks = (0..4).map(|_| backend.refresh_listed(&http));
        for look in looks {
            look.await;
        }
        assert_eq!(server.probes(), 1, "{name}: one look is good for a while");
        assert!(backend.serves(model), "{name}");
        let found = backend.upstream_model(model);
        assert_eq!((found.as_str(), backend.lacks(&found)), (asked_as, lacks), "{name}");
        assert!(!backend.serves("unheard-of"), "{name}");
        backend.state().answers_to = Some(asked_as.to_owned());
        assert!(!backend.lacks(asked_as), "{name}: what it answers to it has");
    }
}
