use super::*;

fn with(layer: &str) -> anyhow::Result<Options> {
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("c.toml");
    std::fs::write(&path, layer)?;
    Loader::new().file(&path)?.finish()
}

#[test]
fn the_embedded_configuration_is_the_default() {
    assert_eq!(Loader::new().finish().unwrap(), Options::default());
}

#[test]
fn a_dump_loads_to_the_same_options() {
    let options = with("[[device]]\nname='a'\nquantum_ms=2\n[[tenant]]\nname='t'\n").unwrap();
    assert_eq!(with(&options.dump()).unwrap(), options);
}

#[test]
fn later_layers_win() {
    let env = [
        ("BALTRA_NODE__NAME".to_owned(), "east".to_owned()),
        ("BALTRA_EXECUTORS__PRESTART".to_owned(), "5".to_owned()),
        ("BALTRA_DEVICE__SLOTS".to_owned(), "3".to_owned()),
        ("BALTRA_ENDPOINT".to_owned(), "unix:/x".to_owned()),
    ];
    let options = Loader::new()
        .environment(env)
        .unwrap()
        .assignment("executors.prestart=7")
        .unwrap()
        .finish()
        .unwrap();
    assert_eq!(options.node.name, "east");
    assert_eq!(options.executors.prestart, 7);
    assert_eq!(options.devices[0].slots, 3);
}

#[test]
fn mistakes_name_their_key() {
    for (layer, key) in [
        ("[listen]\nunix_mode='9'", "listen.unix_mode"),
        ("[listen]\ntls_cert='/a'", "listen.tls_cert"),
        ("[metrics]\naddress='nonsense'", "metrics.address"),
        ("[[device]]\nname='a b'", "device[0].name"),
        (
            "[[device]]\nname='a'\n[[device]]\nname='a'",
            "device[1].name",
        ),
        ("[[device]]\nquantum_ms=-1", "device[0].quantum_ms"),
        ("[[device]]\nslice_ms=0.01", "device[0].slice_ms"),
        (
            "[[device]]\nmemory_overcommit=0",
            "device[0].memory_overcommit",
        ),
        (
            "[[device]]\nmemory_overcommit=1\nmemory_bytes=9",
            "device[0].memory_bytes",
        ),
        ("[[device]]\nslice_ms=nan", "device[0].slice_ms"),
        ("[[tenant]]\nname='t'\nweight=0", "tenant[0].weight"),
        (
            "[[tenant]]\nname='t'\ntoken_sha256='12'",
            "tenant[0].token_sha256",
        ),
        ("[node]\nnam='x'", "nam"),
        ("[node]\nregistry='east'", "node.registry"),
        ("[node]\nadvertise=['east']", "node.advertise"),
        ("registry=1", "registry"),
        ("[registri]\nlisten='x'", "registri"),
        ("[[device]]\npolicy='lottery'", "lottery"),
    ] {
        let error = format!("{:#}", with(layer).unwrap_err());
        assert!(error.contains(key), "{layer}: {error}");
    }
}

#[test]
fn other_daemons_sections_are_layered_and_left_to_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c.toml");
    std::fs::write(
        &path,
        "[gateway]\nlisten='a'\n[gateway.tls]\ncert='c'\n[registry]\nx=1\n",
    )
    .unwrap();
    let loader = Loader::new()
        .file(&path)
        .unwrap()
        .environment([("BALTRA_GATEWAY__LISTEN".into(), "b".into())])
        .unwrap()
        .assignment("registry.y=2")
        .unwrap()
        .assignment("gateway.tls.key=k")
        .unwrap();
    let gateway = loader.section("gateway").unwrap();
    assert_eq!(gateway["listen"].as_str(), Some("b"));
    let tls = ["cert", "key"].map(|k| gateway["tls"][k].as_str().unwrap());
    assert_eq!(tls, ["c", "k"]);
    let text = Loader::new().assignment("node.name=a").unwrap();
    assert!(text.assignment("node.name.b=1").is_err());
    let registry = loader.section("registry").unwrap();
    assert_eq!(
        (registry["x"].as_integer(), registry["y"].as_integer()),
        (Some(1), Some(2))
    );
    assert!(loader.sets("registry", "x") && !loader.sets("registry", "z"));
    loader.finish().unwrap();
}

#[test]
fn a_runtime_directory_too_long_for_a_socket_is_refused() {
    let mut options = Options::default();
    options.paths.runtime = format!("/tmp/{}", "x".repeat(100)).into();
    assert_eq!(options.validate().unwrap_err().key, "paths.runtime");
}

#[test]
fn absent_limits_come_from_the_base() {
    let own = LimitOptions {
        objects: Some(5),
        ..LimitOptions::default()
    };
    let base = LimitOptions {
        objects: Some(9),
        task_ms: Some(100),
        ..LimitOptions::default()
    };
    let limits = own.or(base).wire();
    assert_eq!((limits.objects, limits.task_ms), (5, 100));
}

#[test]
fn relative_directories_are_made_absolute() {
    let paths = with("[paths]\nruntime='run'\nstate='./state'")
        .unwrap()
        .paths;
    let here = std::env::current_dir().unwrap();
    assert_eq!(
        (paths.runtime, paths.state),
        (here.join("run"), here.join("state"))
    );
}

#[test]
fn an_ordinal_needs_no_quotes() {
    let select = |text: &str| Some(with(text).ok()?.devices[0].select.clone());
    assert_eq!(select("[[device]]\nselect=1").as_deref(), Some("1"));
    assert_eq!(select("[[device]]\nselect='1'").as_deref(), Some("1"));
    assert_eq!(select("[[device]]").as_deref(), Some("all"));
    assert_eq!(select("[[device]]\nselect=-1"), None);
    assert_eq!(select("[[device]]\nselect=true"), None);
}
