#!/usr/bin/env python3
"""Checks what deploys a server and cannot be run here: Dockerfile, compose, chart, dashboard, alerts, systemd unit, the list of parts.

    deploy/check/check.py        with the Python that has deploy/check/requirements.txt; hadolint beside it

Prints a line for each check and fails with what is wrong. Where promtool or systemd-analyze is
missing it fails, or passes over that where SIGHTLINE_ALLOW_SKIP=1.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import compose_spec
import helm_python as helm
import kubernetes_validate
import yaml

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm/sightline"
# The oldest that the chart names and the newest whose schemas are there.
KUBERNETES = ("1.27", "1.37")
# Of systemd-analyze security, in tenths of its exposure: docs/DEPLOY.md has the figure.
EXPOSURE_MAX = 19

# The chart with everything that it can be told.
EVERYTHING = {
    "replicas": 3,
    "imagePullSecrets": [{"name": "registry"}],
    "settings": {"SERVICE_MAX_UPLOAD_BYTES": 209715200, "RUST_LOG": "debug"},
    "secretSettings": {"SERVICE_DB_URL": {"name": "database", "key": "url"}},
    "http3": {"tlsSecret": "tls"},
    "live": {"enabled": True, "publicIPs": ["192.0.2.10", "192.0.2.11"]},
    "persistence": {"storageClass": "fast"},
    "footage": [{"mountPath": "/footage", "volume": {"persistentVolumeClaim": {"claimName": "footage", "readOnly": True}}}],
    "ingress": {"enabled": True, "className": "nginx", "tlsSecret": "web"},
    "gpu": {"enabled": True},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "autoscaling": {"enabled": True, "maxReplicas": 3},
    "networkPolicy": {"from": [{"podSelector": {}}]},
    "metrics": {"podMonitor": True},
}
# Values, and the kinds that they make besides those that are always there.
CHARTS = [
    ("defaults", {}, {"Secret", "NetworkPolicy"}),
    ("everything", EVERYTHING, {"Secret", "NetworkPolicy", "Ingress", "HorizontalPodAutoscaler", "PodMonitor"}),
    ("live anywhere", {"live": {"enabled": True}}, {"Secret", "NetworkPolicy"}),
    ("own secret", {"auth": {"existingSecret": "mine"}, "networkPolicy": {"enabled": False}}, set()),
]
ALWAYS = {"StatefulSet", "Service", "PodDisruptionBudget"}
# The label of a pod with its name.
POD = "statefulset.kubernetes.io/pod-name"
# Paths, and the tag of the replica that each leads to; none for any replica.
ROUTES = [
    ("/v1/runs/run-00020123456789abcdef0123456789ab/jobs/job-1", 2),
    ("/v1/stream/whip/sess-00010123456789abcdef0123456789ab", 1),
    ("/v1/files/00000123456789abcdef0123456789ab.mp4", 0),
    ("/nodes/0002/v1/runs", 2),
    ("/v1/runs/run-ffff0123456789abcdef0123456789ab", None),
    ("/v1/runs", None),
    ("/v1/stream/whip", None),
    ("/", None),
]
# Values that the chart refuses.
REFUSED = [{"setting": {}}, {"settings": {"MAX_STREAMS": 1}}, {"live": {"udpPort": 0}}, {"replicas": "three"}]

wrong = []


def check(what, problems):
    problems = list(problems)
    print(f"{what}: {'; '.join(problems) or 'ok'}", flush=True)
    wrong.extend(problems)


def said_by(*command, cwd=ROOT):
    """What a command complains of; nothing where it ends well."""
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return [done.stdout.strip() or f"{command[0]} failed"] if done.returncode else []


def dockerfile():
    hadolint = Path(sys.executable).with_name("hadolint")
    yield from said_by(hadolint, "--config", DEPLOY / "check/hadolint.yaml", DEPLOY / "docker/Dockerfile")


def interpolated(text):
    """What compose makes of ${NAME:-default} and ${NAME:?words}."""
    return re.sub(r"\$\{\w+(?::([-?])([^}]*))?\}", lambda found: found[2] if found[1] == "-" else "word", text)


def unnamed(loaded):
    """What services of a compose file name and the file does not have."""
    for name, service in loaded["services"].items():
        for kind in ("configs", "secrets"):
            used = [entry if isinstance(entry, str) else entry["source"] for entry in service.get(kind, [])]
            yield from (f"{name} names no {kind[:-1]} {entry}" for entry in used if entry not in loaded.get(kind, {}))
        volumes = [volume.split(":")[0] for volume in service.get("volumes", [])]
        yield from (f"{name} names no volume {volume}" for volume in volumes if re.match(r"\w", volume) and volume not in loaded["volumes"])
        yield from (f"{name} names no service {other}" for other in service.get("depends_on", []) if other not in loaded["services"])


def compose():
    for file in sorted((DEPLOY / "docker").glob("compose*.yml")):
        try:
            loaded = yaml.safe_load(interpolated(file.read_text()))
            compose_spec.PyCompose.from_yaml(yaml.safe_dump(loaded))
        except ValueError as error:
            yield f"{file.name}: {error}"
            continue
        yield from (f"{file.name}: {problem}" for problem in unnamed(loaded))
        bound = [volume.split(":")[0] for service in loaded["services"].values() for volume in service.get("volumes", [])]
        bound += [config["file"] for config in loaded.get("configs", {}).values()]
        yield from (f"{file.name}: no {path}" for path in bound if path.startswith("../") and not (file.parent / path).exists())


def documents(rendered):
    for path, text in sorted(rendered.items()):
        if path.endswith(".yaml"):
            yield from (document for document in yaml.safe_load_all(text) if document)


def chart():
    report = helm.lint(CHART, EVERYTHING, strict=True)
    yield from (f"{row['path']}: {row['error']}" for row in report["messages"] if row["severity"] > 1)
    with helm.Chart.load(CHART) as loaded:
        for name, values, kinds in CHARTS:
            found = list(documents(loaded.render(values, name="demo", namespace="video")))
            if {document["kind"] for document in found} != ALWAYS | kinds:
                yield f"{name}: makes {sorted(document['kind'] for document in found)}"
            for document in found:
                if document["apiVersion"].startswith("monitoring.coreos.com"):
                    continue
                for version in KUBERNETES:
                    try:
                        kubernetes_validate.validate(document, version, strict=True)
                    except kubernetes_validate.ValidationError as error:
                        yield f"{name}: {document['kind']} in {version}: {error.message} at {list(error.path)}"
            yield from (f"{name}: {problem}" for problem in hardening(found))
            yield from (f"{name}: {problem}" for problem in routing(found))
        for values in REFUSED:
            try:
                loaded.validate_schema(values)
                yield f"takes {values}"
            except helm.HelmError:
                pass


def hardening(found):
    """What every pod must be like, and that what names others names what is there."""
    (stateful,) = [document for document in found if document["kind"] == "StatefulSet"]
    pod = stateful["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    expected = {
        "runAsNonRoot": (pod["securityContext"].get("runAsNonRoot"), True),
        "seccomp": (pod["securityContext"].get("seccompProfile"), {"type": "RuntimeDefault"}),
        "root": (container["securityContext"].get("readOnlyRootFilesystem"), True),
        "escalation": (container["securityContext"].get("allowPrivilegeEscalation"), False),
        "capabilities": (container["securityContext"].get("capabilities"), {"drop": ["ALL"]}),
        "token": (pod.get("automountServiceAccountToken"), False),
    }
    yield from (f"{name} is {is_}" for name, (is_, must) in expected.items() if is_ != must)
    volumes = {volume["name"] for volume in pod["volumes"]} | {claim["metadata"]["name"] for claim in stateful["spec"]["volumeClaimTemplates"]}
    yield from (f"no volume {mount['name']}" for mount in container["volumeMounts"] if mount["name"] not in volumes)
    yield from (f"{entry['name']} is {entry['value']}" for entry in container["env"] if re.fullmatch(r".*\de[+]\d+", entry.get("value", "")))
    labels = {**stateful["spec"]["template"]["metadata"]["labels"], POD: stateful["metadata"]["name"]}.items()
    for document in found:
        spec = document.get("spec", {})
        selector = spec.get("podSelector") or spec.get("selector") or {}
        selector = selector.get("matchLabels", selector)
        # Kubernetes labels each pod of a StatefulSet with its name.
        selector = {name: value.rpartition("-")[0] if name == POD else value for name, value in selector.items()}
        if not selector.items() <= labels:
            yield f"{document['kind']} selects {selector}"
    ports = {port["name"] for port in container["ports"]}
    targets = {port["targetPort"] for document in found if document["kind"] == "Service" for port in document["spec"]["ports"]}
    yield from (f"no port {port}" for port in targets - ports)
    services = {document["metadata"]["name"] for document in found if document["kind"] == "Service"}
    for document in found:
        rules = document["spec"]["rules"] if document["kind"] == "Ingress" else []
        backends = {path["backend"]["service"]["name"] for rule in rules for path in rule["http"]["paths"]}
        yield from (f"no service {name}" for name in backends - services)


def routing(found):
    """Paths that lead elsewhere than they should, as ingress-nginx takes them: longest first, at their beginning."""
    ingresses = [document["spec"]["rules"] for document in found if document["kind"] == "Ingress"]
    paths = [path for rules in ingresses for rule in rules for path in rule["http"]["paths"]]
    paths.sort(key=lambda path: -len(path["path"]))
    for path, node in ROUTES if paths else ():
        taken = next(one for one in paths if re.match(one["path"], path, re.IGNORECASE))["backend"]["service"]["name"]
        if taken != ("demo-sightline" if node is None else f"demo-sightline-{node}"):
            yield f"{path} leads to {taken}"


def tables(page):
    """Names in the first column of a document's tables, each with those in the second."""
    rows = re.findall(r"^\| (`[^|]*`) \|([^|]*)\|", (ROOT / "docs" / page).read_text(), re.MULTILINE)
    return {name: set(re.findall(r"`(\w+)`", second)) for first, second in rows for name in re.findall(r"`(\w+)`", first)}


def drawn(dashboard):
    """Expressions of a dashboard's panels."""
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]


def strange_labels(expression, known):
    """Labels that an expression selects or groups by and its series do not have."""
    ours, used = {"job", "instance", "le"}, re.findall(r"\b((?:service|process)_\w+)(?:\{([^}]*)\})?", expression)
    labels = {name: ours | known.get(name, known.get(re.sub("_(bucket|sum|count)$", "", name), set())) for name, _ in used}
    yield from (label for name, selector in used for label in re.findall(r"(\w+)[=!]", selector) if label not in labels[name])
    groups = re.findall(r"\w+", " ".join(re.findall(r"\bby \(([^)]*)\)", expression)))
    yield from (label for label in groups if label not in set().union(ours, *labels.values()))


def series():
    dashboard = json.loads((DEPLOY / "grafana/sightline.json").read_text())
    expressions = {"dashboard": drawn(dashboard)}
    groups = yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text())["groups"]
    expressions["alerts"] = [rule["expr"] for group in groups for rule in group["rules"]]
    known = tables("METRICS.md")
    for where, texts in expressions.items():
        used = set(re.findall(r"\b(?:service|process)_\w+", " ".join(texts)))
        unknown = {name for name in used if name not in known and re.sub("_(bucket|sum|count)$", "", name) not in known}
        yield from (f"{where}: docs/METRICS.md has no {name}" for name in sorted(unknown))
        yield from (f"{where}: no label {label} in {text}" for text in texts for label in strange_labels(text, known))
    ids = [panel["id"] for panel in dashboard["panels"]]
    if len(ids) != len(set(ids)):
        yield "dashboard: two panels have one number"


def settings():
    known = tables("CONFIG.md")
    # The ceilings of release-gates are no settings of the server.
    for file in sorted(path for path in DEPLOY.rglob("*") if path.is_file() and path.name not in ("check.py", "release-gates")):
        for name in sorted(set(re.findall(r"\bSERVICE_[A-Z0-9_]*[A-Z0-9]\b", file.read_text()))):
            if name not in known:
                yield f"{file.relative_to(ROOT)}: docs/CONFIG.md has no {name}"


def loads():
    for file in sorted([*DEPLOY.rglob("*.yml"), *DEPLOY.rglob("*.yaml")]):
        if "templates" not in file.parts:
            try:
                list(yaml.safe_load_all(file.read_text()))
            except yaml.YAMLError as error:
                yield f"{file.relative_to(ROOT)}: {error}"


def prometheus():
    folder = DEPLOY / "prometheus"
    yield from said_by("promtool", "check", "rules", "alerts.yml", cwd=folder)
    yield from said_by("promtool", "test", "rules", "alerts_test.yml", cwd=folder)
    yield from said_by("promtool", "check", "config", "--syntax-only", "prometheus.yml", cwd=folder)
    named = yaml.safe_load((folder / "prometheus.yml").read_text())["rule_files"]
    yield from (f"prometheus.yml: no {name}" for name in named if not (folder / name).exists())
    with tempfile.TemporaryDirectory() as scratch:
        # Grafana's variables stand for words and times: a rule for each panel's expression is one that Prometheus reads.
        texts = enumerate(drawn(json.loads((DEPLOY / "grafana/sightline.json").read_text())))
        rules = [{"record": f"panel_{at}", "expr": text.replace("$__rate_interval", "5m").replace("$__range", "1h")} for at, text in texts]
        path = Path(scratch) / "dashboard.yml"
        path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
        yield from said_by("promtool", "check", "rules", path)


def unit():
    file = DEPLOY / "deb/sightline.service"
    threshold = f"--threshold={EXPOSURE_MAX}"
    for said in said_by("systemd-analyze", "security", "--offline=true", threshold, "--no-pager", file):
        yield said.splitlines()[-1]


def versions():
    cargo = re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    if about["appVersion"] != cargo:
        yield f"the chart is of {about['appVersion']}, the programs are of {cargo}"


def parts():
    with tempfile.TemporaryDirectory() as out:
        problems = said_by(DEPLOY / "third-party", out)
        if problems:
            yield from problems
            return
        bill = json.loads((Path(out) / "sbom.cdx.json").read_text())
        purls = [part["purl"] for part in bill["components"]]
        text = (Path(out) / "third-party.txt").read_text()
        if not any(purl.startswith("pkg:generic/rust-std@") for purl in purls):
            yield "no standard library of Rust in the list of parts"
        for crate in ("axum", "aws-lc-sys", "ffmpeg-sys-next", "turbojpeg-sys", "quinn", "rmcp"):
            if not any(purl.startswith(f"pkg:cargo/{crate}@") for purl in purls) or crate not in text:
                yield f"no {crate} in the list of parts"
        if len(purls) != len(set(purls)):
            yield "a part is listed twice"
        # Crates are tests/tidy.rs's; the font's is of fonts alone.
        allowed = {*re.findall(r'^  "(.*)",$', (ROOT / "deny.toml").read_text(), re.MULTILINE), "OFL-1.1"}
        for part in bill["components"]:
            licence = part["licenses"][0]["expression"]
            if part["purl"].startswith("pkg:npm/") and not allowed & set(re.split(r" OR |[()]", licence)):
                yield f"{part['purl']}: licence {licence} is not in deny.toml"


def main():
    for what in (dockerfile, compose, chart, series, settings, loads, versions, parts):
        check(what.__name__, what())
    for program, what in (("promtool", prometheus), ("systemd-analyze", unit)):
        if not shutil.which(program) and os.environ.get("SIGHTLINE_ALLOW_SKIP") == "1":
            print(f"SKIPPED {what.__name__}: there is no {program}")
        else:
            check(what.__name__, what() if shutil.which(program) else [f"no {program}: deploy/setup.sh test installs it"])
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
