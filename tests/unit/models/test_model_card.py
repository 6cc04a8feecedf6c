"""Cards of exports: the Hub's own reader understands them; pushing them to a hub on loopback."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import huggingface_hub.constants
import pytest
from huggingface_hub import ModelCard

from residual_audio.errors import InputError, ModelError
from residual_audio.models import hub
from residual_audio.models.model_card import CardFacts, model_card
from residual_audio.models.model_names import base_of, licence_of
from residual_audio.types import Result, Score

SCORES = (
    Score("top1", 0.5, 0.4, 0.6, 40, 0.02),
    Score("mAP", 0.7, math.nan, math.nan, 40),
    Score("nothing", math.nan, math.nan, math.nan, 0),
)
FACTS = CardFacts(
    name="adapted",
    base="laion/clap-htsat-unfused",
    layout="hf",
    change="It was changed.",
    licence="apache-2.0",
    datasets=("esc50",),
    results=(Result("adapted", "nano", "esc50", "grouped folds", SCORES),),
)


def test_the_hub_reads_the_front_matter() -> None:
    card = ModelCard(model_card(FACTS))
    data = card.data.to_dict()
    assert data["base_model"] == "laion/clap-htsat-unfused"
    assert data["library_name"] == "transformers"
    assert data["pipeline_tag"] == "zero-shot-audio-classification"
    assert data["datasets"] == ["esc50"]
    assert data["license"] == "apache-2.0"
    found = {each.metric_type: each for each in card.data.eval_results}
    assert set(found) == {"accuracy", "mAP"}  # what is no number is no score
    assert found["accuracy"].metric_value == 0.5
    assert "95% interval 0.4 to 0.6, n 40, chance 0.02" in found["accuracy"].metric_name
    assert "| top1 | 0.5 | 0.4 to 0.6 | 40 | 0.02 |" in card.text


def test_clips_that_were_heard_before_are_said_under_the_scores() -> None:
    heard = {"heard_before": {"note": "this model was trained on 9 of these clips"}}
    results = (Result("adapted", "nano", "esc50", "all", SCORES, details=heard),)
    assert "Of esc50: this model was trained on 9" in model_card(replace(FACTS, results=results))
    assert "Of esc50" not in model_card(FACTS)


def test_what_is_not_known_is_said() -> None:
    facts = CardFacts("a", "630k best.pt", "native", "It was changed.", None, has_text=False)
    data = ModelCard(model_card(facts)).data.to_dict()
    assert data["license"] == "other"
    assert data["license_name"] == "unknown"
    assert "base_model" not in data  # not a name that the hub would take
    assert data["pipeline_tag"] == "feature-extraction"


def test_a_name_cannot_leave_its_place() -> None:
    facts = CardFacts("a\n---\nb", "x/y", "hf", "It\x1b[31m was.", "mit", datasets=("a: [",))
    card = ModelCard(model_card(facts))
    assert card.data.to_dict()["datasets"] == ["a: ["]
    assert "\x1b" not in card.content


def test_licences_are_inherited(tmp_path: Path) -> None:
    assert licence_of("nano") == "cc-by-nc-3.0"
    assert licence_of(f"hf:{tmp_path}") is None
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\nhello")
    assert licence_of(f"hf:{tmp_path}") == "mit"
    assert licence_of(str(tmp_path)) == "mit"
    (tmp_path / "README.md").write_text("---\nlicense: [a, b\n---\n")
    assert licence_of(f"hf:{tmp_path}") is None


def test_names_say_nothing_of_a_machine(tmp_path: Path) -> None:
    assert base_of(f"hf:{tmp_path}") == tmp_path.name
    assert base_of("hf:laion/clap-htsat-unfused@main") == "laion/clap-htsat-unfused"


class FakeHub(BaseHTTPRequestHandler):
    """As much of the hub as a commit of small files asks for."""

    asked: list[tuple[str, bytes]]
    refuses = False

    def do_HEAD(self) -> None:
        self._answer(200, {})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        type(self).asked.append((self.path, body))
        if self.refuses:
            return self._answer(403, {"error": "no"})
        if self.path == "/api/repos/create":
            host, port = self.server.server_address[:2]
            return self._answer(200, {"url": f"http://{host}:{port}/me/adapted"})
        if "/preupload/" in self.path:
            names = [file["path"] for file in json.loads(body)["files"]]
            files = [{"path": n, "uploadMode": "regular", "shouldIgnore": False} for n in names]
            return self._answer(200, {"files": files})
        where = f"http://{self.headers['Host']}/me/adapted/commit/1"
        commit = {"commitUrl": where, "commitOid": "1", "success": True}
        return self._answer(200, commit)

    def _answer(self, status: int, document: dict) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def fake_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeHub]]:
    handler = type("Handler", (FakeHub,), {"asked": [], "timeout": 10})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", address)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(
        hub, "_api", lambda: huggingface_hub.HfApi(endpoint=address, token="hf_fake")
    )
    hub.hub_reachable.cache_clear()
    yield handler
    server.shutdown()
    server.server_close()
    thread.join(timeout=10)
    hub.hub_reachable.cache_clear()


def test_all_files_go_in_one_commit(fake_hub: type[FakeHub], tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("the card")
    (tmp_path / "config.json").write_text("{}")
    hub.push({p.name: p for p in tmp_path.iterdir()}, "me/adapted")
    paths = [path for path, _ in fake_hub.asked]
    assert paths[0] == "/api/repos/create"
    made = json.loads(fake_hub.asked[0][1])
    assert made.get("private") or made.get("visibility") == "private"
    commits = [body for path, body in fake_hub.asked if "/commit/" in path]
    assert len(commits) == 1
    rows = [json.loads(line)["value"] for line in commits[0].splitlines()]
    assert {row["path"] for row in rows if "path" in row} == {"README.md", "config.json"}


def test_a_refusal_is_one_sentence(fake_hub: type[FakeHub], tmp_path: Path) -> None:
    fake_hub.refuses = True
    with pytest.raises(ModelError, match="did not take 'me/adapted' \\(403\\)"):
        hub.push({}, "me/adapted")


def test_offline_and_bad_names_are_refused_before_any_work(monkeypatch) -> None:
    monkeypatch.setattr(hub, "hub_reachable", lambda: False)
    with pytest.raises(ModelError, match="cannot be reached"):
        hub.check_repository("me/adapted")
    with pytest.raises(InputError, match="no repository id"):
        hub.check_repository("me//adapted")
