//! Tests of settings: defaults, refusals by name, suggestions, hidden secrets.

use super::*;

const KEY: &str = "0123456789abcdef";

fn resolve(pairs: &[(&str, &str)]) -> Result<Config, Vec<VarError>> {
    Config::resolve(pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())))
}

#[test]
fn defaults_are_those_of_the_contract() {
    let config = resolve(&[("SERVICE_API_KEYS", KEY)]).expect("valid");
    assert_eq!(config.api.bind_addr.to_string(), "127.0.0.1:8080");
    assert!(config.data_dir.is_absolute() && config.data_dir.ends_with(".sightline-data"));
    assert_eq!((config.active_limit, config.run_ttl.as_secs()), (5, 3600));
    assert_eq!(config.api.gate, GateConfig::default());
    for frames in [0, 30] {
        let text = frames.to_string();
        let set = [("SERVICE_API_KEYS", KEY), ("SERVICE_GATE_KEEPALIVE_FRAMES", text.as_str())];
        let gate = resolve(&set).expect("valid").api.gate;
        assert_eq!((gate.keepalive_frames, gate.keepalive_ms), (frames, None));
    }
    assert!(config.ingest_stills && !config.api.require_tenant_id);
    let live = &config.api.live;
    assert_eq!(live.memory_share, live.memory_budget, "nobody else has a key");
    assert_eq!(
        (config.api.rate_global, config.api.rate_principal),
        (NonZeroU32::new(2000), NonZeroU32::new(400))
    );
    assert!(config.warnings.is_empty());
}

#[test]
fn a_bad_value_is_named_and_a_bound_is_accepted() {
    type Values = &'static [&'static str];
    let rows: &[(&str, Values, Values)] = &[
        ("SERVICE_BIND_ADDR", &["localhost"], &[]),
        ("SERVICE_REQUIRE_API_KEY", &["yes please"], &[]),
        ("SERVICE_REQUIRE_TENANT_ID", &["2"], &[]),
        (
            "SERVICE_API_KEYS",
            &["a:the-first-key-of-a,a:the-second-key-of-a", "a:fifteen-bytes-k"],
            &[],
        ),
        ("SERVICE_METRICS_API_KEYS", &["a:fifteen-bytes-k", KEY], &[]),
        ("SERVICE_API_KEYS_FILE", &["/nonexistent/keys"], &[]),
        ("SERVICE_INGEST_FILE_ROOTS", &["/nonexistent", "/dev/null"], &[]),
        ("SERVICE_ACTIVE_STREAM_LIMIT", &["0", "1025"], &["1", "1024"]),
        ("SERVICE_NODE_TAG", &["12", "00FF"], &["00ff"]),
        ("SERVICE_STREAM_TTL_SECS", &["59", "86401"], &["60", "86400"]),
        ("SERVICE_GATE_SCENE_CUT", &["1.1"], &[]),
        ("SERVICE_GATE_FLICKER", &["NaN"], &[]),
        ("SERVICE_GATE_KEEPALIVE_FRAMES", &["-1"], &[]),
        ("SERVICE_INGEST_STILLS", &["all"], &[]),
        ("SERVICE_CONSOLE", &["true"], &[]),
        ("SERVICE_TRANSPORT", &["h4"], &[]),
        ("SERVICE_DECODE_BACKEND", &["fast"], &["software", "nvdec", "vaapi", "ffmpeg-cli"]),
        ("SERVICE_DECODE_DEVICE", &["card0"], &["0", "/dev/dri/renderD129"]),
        ("SERVICE_GATE_BACKEND", &["gpu"], &["cpu", "wgpu", "cuda"]),
        ("SERVICE_MAX_CONNECTIONS", &["15"], &[]),
        ("SERVICE_MAX_CONNECTIONS_PER_ADDRESS", &["-1"], &[]),
        ("SERVICE_TRACES_ENDPOINT", &["collector:4317", "ftp://collector.example", "http://"], &[]),
        ("SERVICE_METRICS_REQUIRE_API_KEY", &["maybe"], &[]),
        ("SERVICE_DB_MIRROR", &["everything"], &[]),
        ("SERVICE_DB_URL", &["mysql://alice@db.example/sightline"], &[]),
        ("SERVICE_EXPORT_URL", &["file://relative/dir", "ftp://host/dir"], &[]),
        ("SERVICE_EXPORT_AGE_SECS", &["0"], &[]),
        ("SERVICE_BLOB_URL", &["/srv/blobs", "s3://x", "s3://without/credentials"], &[]),
        ("SERVICE_BLOB_ENDPOINT", &["minio:9000"], &[]),
        ("SERVICE_BLOB_CACHE_MIB", &["-1"], &[]),
        (
            "SERVICE_CORS_ALLOWED_ORIGINS",
            &["*", "https://a.example/path", "a.example", "https://*.example"],
            &[
                "https://a.example, http://localhost:3000",
                "https://a.example:80, http://[::1]:443, http://[::1]",
            ],
        ),
        ("SERVICE_RATE_LIMIT_GLOBAL_RPS", &["-1"], &["0"]),
        ("SERVICE_RATE_LIMIT_TENANT_RPS", &["1.5"], &[]),
        ("SERVICE_ALLOW_REMOTE_HLS", &["on"], &[]),
        ("SERVICE_EGRESS_ALLOWED_NETWORKS", &["10.0.0.1/33"], &[]),
        ("SERVICE_REMOTE_MAX_BYTES", &["0"], &[]),
        ("SERVICE_VLLM_BASE_URL", &["localhost:8000"], &[]),
        ("SERVICE_SGLANG_BASE_URL", &["http://user:hush@host"], &[]),
        ("SERVICE_CONFIG", &["/nonexistent/sightline.toml"], &[]),
        ("SERVICE_INFERENCE_GLOBAL_LIMIT", &["0"], &[]),
        ("SERVICE_INFERENCE_PER_PRINCIPAL_LIMIT", &["1025"], &[]),
        ("SERVICE_INFERENCE_WAITER_LIMIT", &["0"], &[]),
        ("SERVICE_INFERENCE_WAIT_TIMEOUT_MS", &["0"], &[]),
        ("SERVICE_INFERENCE_IMAGE_MIB", &["15"], &[]),
        ("SERVICE_INFERENCE_TOKENS", &["1"], &[]),
        ("SERVICE_INFERENCE_TOKENS_PER_DAY", &["-1"], &[]),
        ("RUST_LOG", &["no=such=filter"], &[]),
        ("SERVICE_LOG_FORMAT", &["xml"], &[]),
    ];
    for &(name, refused, accepted) in rows {
        let with = |value| {
            let keys = Some(("SERVICE_API_KEYS", KEY)).filter(|(known, _)| *known != name);
            resolve(&keys.into_iter().chain([(name, value)]).collect::<Vec<_>>())
        };
        for &value in refused {
            let errors = with(value).expect_err(value);
            assert!(errors.iter().any(|error| error.name == name), "{name}={value}: {errors:?}");
        }
        for &value in accepted {
            let resolved = with(value);
            assert!(resolved.is_ok(), "{name}={value}: {:?}", resolved.err());
        }
    }
}

#[test]
fn an_origin_that_no_browser_sends_is_refused_with_the_one_to_write() {
    let cases = [
        ("https://A.example", "https://a.example"),
        ("HTTPS://a.example", "https://a.example"),
        ("https://a.example:443", "https://a.example"),
        ("http://localhost:80", "http://localhost"),
        ("http://localhost:03000", "http://localhost:3000"),
        ("https://user:hush@a.example/path", "https://a.example"),
    ];
    for (value, sent) in cases {
        let pairs = [("SERVICE_API_KEYS", KEY), ("SERVICE_CORS_ALLOWED_ORIGINS", value)];
        let errors = resolve(&pairs).expect_err(value);
        let expected = format!("must list origins as browsers send them: {sent}");
        assert!(errors.iter().any(|error| error.problem == expected), "{value}: {errors:?}");
    }
}

#[test]
fn principals_share_a_worker_where_a_device_is_named_or_somebody_says_so() {
    let rows: [(&[(&str, &str)], bool); 6] = [
        (&[], false),
        (&[("SERVICE_DECODE_BACKEND", "auto")], false),
        (&[("SERVICE_DECODE_BACKEND", "ffmpeg-cli"), ("SERVICE_GATE_BACKEND", "cpu")], false),
        (&[("SERVICE_DECODE_BACKEND", "nvdec")], true),
        (&[("SERVICE_DECODE_BACKEND", "vaapi"), ("SERVICE_MEDIA_ISOLATION", "principal")], false),
        (&[("SERVICE_MEDIA_ISOLATION", "shared")], true),
    ];
    for (values, expected) in rows {
        let config = resolve(&[values, &[("SERVICE_API_KEYS", KEY)]].concat()).expect("resolves");
        assert_eq!(config.api.live.shares_workers, expected, "{values:?}");
    }
}

#[test]
fn without_a_key_the_server_says_how_to_set_one_or_turn_keys_off() {
    let errors = resolve(&[]).expect_err("no key");
    let text = errors.iter().map(ToString::to_string).collect::<String>();
    assert!(
        text.contains("SERVICE_API_KEYS ") && text.contains("SERVICE_REQUIRE_API_KEY=false"),
        "{text}"
    );
    assert!(resolve(&[("SERVICE_REQUIRE_API_KEY", "false")]).expect("open").api.keys.is_none());
}

#[test]
fn unknown_variables_get_a_suggestion() {
    let pairs = [("SERVICE_API_KEYS", KEY), ("SERVICE_BIND_ADR", "x"), ("SERVICE_FROBNICATE", "1")];
    let warnings = resolve(&pairs).expect("only warnings").warnings;
    assert_eq!(
        warnings,
        [
            "SERVICE_BIND_ADR is not a setting and is ignored: meant SERVICE_BIND_ADDR?",
            "SERVICE_FROBNICATE is not a setting and is ignored",
        ]
    );
}

#[test]
fn no_secret_is_shown_or_debugged() {
    let secrets = [
        ("SERVICE_API_KEYS", "alice:hush-hush-hush-hush"),
        ("SERVICE_DB_URL", "postgres://alice:hush-hush-hush@db.example/sightline"),
    ];
    let config = resolve(&secrets).expect("valid");
    let shown: String = config.shown.iter().map(ToString::to_string).collect();
    assert!(!shown.contains("hush") && !format!("{config:?}").contains("hush"), "{shown}");
    for (name, _) in secrets {
        assert!(shown.contains(&format!("{name}=(set, hidden)")), "{shown}");
    }
}

#[test]
fn the_credentials_of_a_collector_are_masked() {
    let rows = [
        ("http://127.0.0.1:4317", "http://127.0.0.1:4317"),
        ("https://me:hush@collector.example:4317/x", "https://***@collector.example:4317/x"),
        ("https://hush@collector.example", "https://***@collector.example"),
        ("https://me:hu@sh@collector.example/a@b", "https://***@collector.example/a@b"),
    ];
    for (url, masked) in rows {
        let pairs = [("SERVICE_API_KEYS", KEY), ("SERVICE_TRACES_ENDPOINT", url)];
        let Ok(config) = resolve(&pairs) else {
            // A value that is not a URL is refused, and the error does not show it.
            assert!(url.contains("hu@sh"), "{url}");
            continue;
        };
        let shown = config.shown.iter().find(|shown| shown.name == "SERVICE_TRACES_ENDPOINT");
        assert_eq!(shown.map(|shown| shown.value.as_str()), Some(masked));
        assert_eq!(config.traces_endpoint.as_ref().map(TraceEndpoint::as_str), Some(url));
        assert!(!format!("{config:?}").contains("hush"), "{url}");
    }
}

#[test]
fn backends_come_from_explicit_urls_or_from_the_file_and_never_both() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("backends.toml");
    let text = r#"
        [[backends]]
        name = "house"
        type = "openai_compat"
        base_url = "http://127.0.0.1:8000"
        api_key = "${SERVICE_HOUSE_KEY}"
        model = "house-7b"
        priority = 3
    "#;
    std::fs::write(&file, text).expect("written");
    let file = file.display().to_string();
    let keys = ("SERVICE_API_KEYS", KEY);
    let names = |pairs: &[(&str, &str)]| {
        let config = resolve(pairs).expect("valid");
        let names = config.api.inference.backends.iter().map(|backend| backend.name.to_string());
        (names.collect::<Vec<_>>(), config.warnings, format!("{:?}", config.api.inference))
    };
    assert_eq!(names(&[keys]).0, [""; 0], "the default file need not be there");
    let secret = ("SERVICE_HOUSE_KEY", "hush-hush");
    let (found, warnings, debug) = names(&[keys, secret, ("SERVICE_CONFIG", &file)]);
    assert_eq!(
        (found, warnings),
        (vec!["house".to_owned()], vec![]),
        "a variable it names is used"
    );
    assert!(!debug.contains("hush"), "{debug}");
    let explicit =
        [("SERVICE_VLLM_BASE_URL", "http://a/v1"), ("SERVICE_SGLANG_BASE_URL", "http://b")];
    let (found, ..) = names(&[keys, ("SERVICE_CONFIG", &file), explicit[0], explicit[1]]);
    assert_eq!(found, ["vllm", "sglang"]);
    let (found, ..) = names(&[keys, ("SERVICE_CONFIG", "/nonexistent"), explicit[1]]);
    assert_eq!(found, ["sglang"], "the file is not read");
    let errors = resolve(&[keys, ("SERVICE_CONFIG", &file)]).expect_err("the key is not set");
    let text = errors[0].to_string();
    assert!(text.contains("backends.toml:6: backends[0].api_key"), "{text}");
}
