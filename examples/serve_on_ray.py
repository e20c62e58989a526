"""Two replicas of the server on Ray Serve, one of which is killed while clients ask.

    pip install 'selectrie[server]' 'ray[serve]'
    python examples/serve_on_ray.py [MODEL]

Ray Serve runs the ASGI application in a process for each replica, spreads requests over them, and replaces a replica that
dies. What it was working on is lost, so a client asks again, as OpenAI's and TypeSafe's do by themselves. Every answer is
compared with that of an engine in this process.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray
from ray import serve

import selectrie
from selectrie.server import ServerOptions, app

PORT, N_REPLICAS, N_CLIENTS = 8321, 2, 8
TICKETS = [
    f"{text} (order {number})"
    for number in range(40)
    for text in ("My parcel has not come.", "Where is my order?", "I want my money back.")
]
QUESTION = selectrie.Choice("What does the customer want?", ["track order", "refund"])
MAX_TRIES = 20


def application(source: str | None) -> Callable[[], Any]:
    """Return a function that builds the application in the process of a replica."""

    def build() -> Any:
        return app(selectrie.load(source, n_threads=1), ServerOptions(max_requests=64))

    return build


def replicas() -> list[tuple[str, str]]:
    """Return name and namespace of the actors that are replicas."""
    actors = ray.util.list_named_actors(all_namespaces=True)
    return [(one["name"], one["namespace"]) for one in actors if one["name"].startswith("SERVE_REPLICA::")]


def ask(ticket: str) -> tuple[dict[str, Any], int]:
    """Return the answer of the server, and how many times it was asked in vain."""
    question = {
        "type": "choice",
        "instructions": QUESTION.instructions,
        "choices": [{"value": one.value} for one in QUESTION.options],
    }
    body = json.dumps({"model": "any", "input": ticket, "questions": [question]}).encode()
    for failed in range(MAX_TRIES):
        request = urllib.request.Request(
            f"http://127.0.0.1:{PORT}/v1/decisions", body, {"content-type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:  # noqa: S310 - a URL of our own
                return json.load(reply)["answers"][0], failed
        except urllib.error.HTTPError as error:
            if error.code < 500:
                raise
        except OSError:
            pass
        time.sleep(0.2 * (failed + 1))
    raise RuntimeError(f"no answer in {MAX_TRIES} tries")


def main() -> None:
    """Serve, ask, kill, compare."""
    source = sys.argv[1] if len(sys.argv) > 1 else None
    with selectrie.load(source, n_threads=1) as llm:
        expected = [one.value for one in llm.decide_many(TICKETS, QUESTION)]
    ray.init(num_cpus=N_REPLICAS + 1, include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": PORT})
    deployment = serve.deployment(serve.ingress(application(source))())
    serve.run(deployment.options(num_replicas=N_REPLICAS, max_ongoing_requests=64, health_check_period_s=2).bind())
    before = replicas()
    print(f"{len(before)} replicas at http://127.0.0.1:{PORT}")

    def ask_or_kill(number: int) -> tuple[dict[str, Any], int]:
        if number == len(TICKETS) // 4:  # in the middle of the work of all clients
            ray.kill(ray.get_actor(*before[0]))
        return ask(TICKETS[number])

    with ThreadPoolExecutor(N_CLIENTS) as clients:
        answers = list(clients.map(ask_or_kill, range(len(TICKETS))))
    wrong = sum(answer["choice"] != value for (answer, _), value in zip(answers, expected, strict=True))
    again = sum(failed > 0 for _, failed in answers)
    print(f"killed {before[0][0].split('#')[-1]}; {again} of {len(answers)} requests were sent again")
    while not set(replicas()) - set(before):
        time.sleep(0.2)
    print(f"{len(answers)} answers, {wrong} wrong; the replica was replaced")
    serve.shutdown()
    ray.shutdown()
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
