"""The examples of how the server is run: what they name exists, and their parts agree with each other and with the server."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path, PurePosixPath

import pytest
import yaml
from typer.main import get_command

pytest.importorskip("fastapi", reason="needs the extra 'server'")

from selectrie.cli import app as cli
from selectrie.cli.arguments import keys_of, read_config, variable
from selectrie.cli.groups import ConfigGroup, ModelGroup
from selectrie.cli.serve import AddressGroup, ModelsGroup, ServingGroup
from selectrie.runs.data_files import parse_toml
from selectrie.server import ServerOptions, app
from tests.support.deciding import fake
from tests.support.serving import ask

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "serving"
UNIT, DOCKERFILE, NGINX, TOML = (
    (FOLDER / name).read_text(encoding="utf-8")
    for name in ("selectrie.service", "Dockerfile", "nginx.conf", "serve.toml")
)
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
CONFIG_MAP, DEPLOYMENT, SERVICE = yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text(encoding="utf-8"))
POD = DEPLOYMENT["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
IN_MAP = CONFIG_MAP["data"]["serve.toml"]
ENTRYPOINT = json.loads(re.search(r"^ENTRYPOINT (\[.*?\])$", DOCKERFILE.replace("\\\n", ""), re.MULTILINE)[1])
SYSTEMD_ANALYZE = shutil.which("systemd-analyze")
FLAGS = {flag for one in get_command(cli).commands["serve"].params for flag in one.opts}


def seconds(pattern: str, text: str) -> float:
    return float(re.search(pattern, text, re.MULTILINE)[1])


def test_flags_and_variables_exist():
    """Those of every command line and environment."""
    unit = shlex.split(re.search(r"^ExecStart=(.*)$", UNIT, re.MULTILINE)[1])
    commands = [unit[1:], ENTRYPOINT[1:] + COMPOSE["services"]["selectrie"]["command"], ["serve", *CONTAINER["args"]]]
    for command in commands:
        assert command[0] == "serve"
        assert {word for word in command if word.startswith("--")} <= FLAGS
    variables = {variable("serve", flag) for flag in FLAGS}
    used = set(re.findall(r"SELECTRIE_SERVE_\w+(?==)", UNIT)) | COMPOSE["services"]["selectrie"]["environment"].keys()
    assert len(used) == 3
    assert used <= variables
    assert {f"--{name}" for name in re.findall(r"--([a-z-]+-mib|deadline)", NGINX)} <= FLAGS


@pytest.mark.parametrize("text", [TOML, IN_MAP], ids=["serve.toml", "kubernetes"])
def test_configurations_are_read(text, tmp_path):
    """By the code of the command; each names several models, and what they need is mounted in both kinds of containers."""
    (tmp_path / "serve.toml").write_text(text)
    groups = (ConfigGroup, ModelGroup, ModelsGroup, AddressGroup, ServingGroup)
    found = read_config(str(tmp_path / "serve.toml"), keys_of(*groups), keys_of)
    assert set(found["models"]) == {"small", "large"}
    assert {found["port"], CONTAINER["ports"][0]["containerPort"], int(re.search(r"EXPOSE (\d+)", DOCKERFILE)[1])} == {
        8080
    }
    paths = [found["api_key_file"], *(table["model"] for table in found["models"].values())]
    in_pod = {one["mountPath"] for one in CONTAINER["volumeMounts"]}
    in_compose = {"/run/secrets"} | {one.split(":")[1] for one in COMPOSE["services"]["selectrie"]["volumes"]}
    for path in paths:
        assert str(PurePosixPath(path).parent) in in_pod & in_compose
    assert "/etc/selectrie" in in_pod
    assert "/etc/selectrie/serve.toml" in in_compose
    assert PurePosixPath(found["api_key_file"]).name in COMPOSE["secrets"]


def test_work_has_time_to_finish():
    """Whatever stops a server waits for longer than the server does, and balancers wait for longer than a request may take."""
    accepted = {parse_toml(text, "serve.toml")["shutdown-timeout"] for text in (TOML, IN_MAP)} | {
        float(ENTRYPOINT[ENTRYPOINT.index("--shutdown-timeout") + 1])
    }
    (shutdown_s,) = accepted
    assert seconds(r"^TimeoutStopSec=(\d+)$", UNIT) > shutdown_s
    assert seconds(r"^(\d+)s$", COMPOSE["services"]["selectrie"]["stop_grace_period"]) > shutdown_s
    assert POD["terminationGracePeriodSeconds"] > shutdown_s + CONTAINER["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert seconds(r"proxy_read_timeout (\d+)s;", NGINX) > ServerOptions().deadline_s
    assert seconds(r"client_max_body_size (\d+)m;", NGINX) * (1 << 20) == ServerOptions().max_body_bytes


def test_probes_are_answered():
    """Each path that is probed, by Kubernetes, compose and the image; the host is that of a pod, and no key is sent."""
    probes = [CONTAINER[name]["httpGet"] for name in ("startupProbe", "readinessProbe", "livenessProbe")]
    checks = [
        COMPOSE["services"]["selectrie"]["healthcheck"]["test"][-1],
        re.search(r"HEALTHCHECK.*?CMD (\[.*?\])", DOCKERFILE, re.DOTALL)[1],
    ]
    paths = [probe["path"] for probe in probes] + [re.search(r"8080(/\w+)", check)[1] for check in checks]
    assert paths == ["/ready", "/ready", "/health", "/ready", "/health"]
    assert {probe["port"] for probe in probes} == {
        CONTAINER["ports"][0]["name"],
        SERVICE["spec"]["ports"][0]["targetPort"],
    }
    with fake() as llm:
        for application, statuses in (
            (app(llm, ServerOptions(hosts=("x",), key_digests=(bytes(32),))), (200, 200)),
            (app(None), (503, 200)),
        ):
            for path, status in zip(("/ready", "/health"), statuses, strict=True):
                assert ask(application, "GET", path, headers={"host": "10.1.2.3:8080"}).status == status


def test_parts_name_each_other():
    """Labels, volumes, claims, secrets and files."""
    labels = DEPLOYMENT["spec"]["template"]["metadata"]["labels"]
    assert labels == DEPLOYMENT["spec"]["selector"]["matchLabels"] == SERVICE["spec"]["selector"]
    assert {one["name"] for one in CONTAINER["volumeMounts"]} == {one["name"] for one in POD["volumes"]}
    assert POD["volumes"][0]["configMap"]["name"] == CONFIG_MAP["metadata"]["name"]
    assert POD["enableServiceLinks"] is False
    service = COMPOSE["services"]["selectrie"]
    assert (FOLDER / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    assert set(service["secrets"]) <= COMPOSE["secrets"].keys()
    named = {one.split(":")[0] for one in service["volumes"] if not one.startswith("./")}
    assert named <= COMPOSE["volumes"].keys()


@pytest.mark.skipif(SYSTEMD_ANALYZE is None, reason="needs systemd-analyze")
def test_the_unit_is_one_of_systemd(tmp_path):
    """`systemd-analyze verify` finds nothing, where its command exists; it does find a word that is none."""
    unit = UNIT.replace("/opt/selectrie/bin/selectrie", "/bin/true")

    def verified(text: str) -> tuple[int, str]:
        (tmp_path / "selectrie.service").write_text(text)
        done = subprocess.run(
            [SYSTEMD_ANALYZE, "verify", tmp_path / "selectrie.service"], capture_output=True, text=True, check=False
        )
        return done.returncode, done.stderr

    assert verified(unit) == (0, "")
    assert "TimeoutStopSecs" in verified(unit.replace("TimeoutStopSec", "TimeoutStopSecs"))[1]
