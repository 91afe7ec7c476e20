"""The lists of models, to OpenAI's clients and to Anthropic's."""

import pytest

MODELS = "/v1/models"
ANTHROPIC = {"anthropic_version": "2023-06-01"}


def test_models_are_listed_from_memory(world):
    answer = world.call("GET", MODELS).json
    assert answer["object"] == "list"
    assert [entry["id"] for entry in answer["data"]] == ["tiny", "small", "org/big", "echo"]
    assert answer["data"][0] == {"id": "tiny", "object": "model", "created": 1_760_000_000, "owned_by": "openai",
                                 "type": "model", "display_name": "tiny", "created_at": "2025-10-09T08:53:20.000000Z"}
    assert not world.edge.asked


def test_an_alias_says_what_stands_behind_it_and_the_context_is_told_where_it_is_known(world):
    target = world.edge.node("n1").targets[0]
    target.aliases, target.context_tokens = ["claude-local-qwen"], 4096
    answer = world.call("GET", MODELS + "/claude-local-qwen").json
    assert answer["display_name"] == "claude-local-qwen (tiny)"
    assert (answer["context_length"], answer["max_model_len"]) == (4096, 4096)


@pytest.mark.parametrize("name", ["tiny", "org/big", "openai/org/big", "n1/openai/org/big", "org%2Fbig"])
def test_a_model_is_found_by_each_of_its_names(world, name):
    answer = world.call("GET", f"{MODELS}/{name}")
    assert (answer.status, answer.json["id"]) == (200, name.replace("%2F", "/"))


def test_the_list_can_be_limited(world):
    assert len(world.call("GET", MODELS + "?limit=1000").json["data"]) == 4
    assert len(world.call("GET", MODELS + "?limit=2&other=1").json["data"]) == 2


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "limit=1&limit=2"])
def test_a_bad_limit_is_an_invalid_request_in_the_clients_dialect(world, query):
    assert world.call("GET", f"{MODELS}?{query}").code == "invalid_request"
    answer = world.call("GET", f"{MODELS}?{query}", **ANTHROPIC)
    assert (answer.status, answer.json["type"], answer.json["error"]["type"]) == (400, "error", "invalid_request_error")


def test_anthropics_clients_find_their_own_shape(world):
    world.edge.node("n1").targets[0].aliases = ["claude-local-qwen"]
    answer = world.call("GET", MODELS + "?limit=1000", **ANTHROPIC).json
    assert (answer["has_more"], answer["first_id"], answer["last_id"]) == (False, "tiny", "echo")
    told = {"type": "model", "id": "claude-local-qwen", "display_name": "claude-local-qwen (tiny)",
            "created_at": "2025-10-09T08:53:20.000000Z"}
    assert answer["data"][1].items() >= told.items()


def test_anthropics_clients_read_it_in_pages(world):
    page = world.call("GET", MODELS + "?limit=3", **ANTHROPIC).json
    assert (page["has_more"], page["last_id"]) == (True, "org/big")
    page = world.call("GET", MODELS + "?limit=3&after_id=org/big", **ANTHROPIC).json
    assert (page["has_more"], [entry["id"] for entry in page["data"]]) == (False, ["echo"])
    page = world.call("GET", MODELS + "?limit=1&before_id=org/big", **ANTHROPIC).json
    assert (page["has_more"], page["first_id"]) == (True, "small")
    assert world.call("GET", MODELS + "?after_id=none", **ANTHROPIC).status == 400


def test_an_unknown_model_is_not_found_in_either_dialect(world):
    answer = world.call("GET", MODELS + "/no/such")
    assert (answer.status, answer.code, answer.json["error"]["param"]) == (404, "model_not_found", "model")
    answer = world.call("GET", MODELS + "/no/such", **ANTHROPIC)
    assert (answer.status, answer.json["type"], answer.json["error"]["type"]) == (404, "error", "not_found_error")
    assert "code" not in answer.json["error"]


def test_either_header_carries_the_key(world):
    wire = world.wire()
    wire.key = ""
    assert wire.call("GET", MODELS, x_api_key=world.op).status == 200
    assert wire.call("GET", MODELS, authorization=f"Bearer {world.op}").status == 200
    assert wire.call("GET", MODELS).status == 401


def test_a_key_sees_only_the_models_that_it_may_use(world):
    world.edge.forbidden = {"tiny", "small"}
    assert [entry["id"] for entry in world.call("GET", MODELS).json["data"]] == ["org/big", "echo"]
    assert world.call("GET", MODELS + "/small").code == "model_not_found"
    assert [entry["name"] for entry in world.call("GET", "/api/tags").json["models"]] == ["org/big:latest", "echo:latest"]
    assert world.call("POST", "/api/show", {"model": "tiny"}).status == 404
