"""What real clients depend on, fact by fact, and the tests that hold us to it; they stand beside the code they test.

A test is named by its function alone, so that it may move.
"""

from __future__ import annotations

FACTS: dict[str, dict[str, tuple[str, ...]]] = {
    "decisions": {
        "who leaves stops its run, on every API": (
            "test_a_client_that_leaves_stops_its_run", "test_closing_its_stream_stops_the_run",
            "test_a_client_that_leaves_stops_its_response", "test_leaving_stops_the_run",
            "test_a_codex_that_is_stopped_stops_its_run"),
        "a cancel reaches the backend in every phase": (
            "test_a_stop_closes_the_connection_in_every_phase", "test_a_stop_closes_the_connection_of_every_api",
            "test_a_cancel_while_it_loads_gives_the_slot_back_at_once", "test_cancel_works_in_every_phase_and_twice",
            "test_ten_thousand_cancels_in_any_phase_leave_no_slot_taken"),
        "x-iop-detach and background go on without a reader": (
            "test_a_detached_run_goes_on_for_as_long_as_it_was_told",
            "test_a_background_response_is_answered_at_once_and_goes_on_alone"),
        "a stream that breaks ends as an error, and no end is invented": (
            "test_a_failure_after_output_is_an_error_object_and_no_done",
            "test_no_ending_but_completed_looks_like_success", "test_a_stream_without_its_end_marker_is_never_completed",
            "test_a_stream_that_breaks_is_an_error_and_no_answer"),
        "another node is tried before the first output only": (
            "test_a_client_notices_nothing_of_a_broken_backend_while_another_node_has_the_model",
            "test_a_reply_that_has_begun_is_not_asked_for_again"),
        "an answer tells of its request, run, node and waiting": (
            "test_an_answer_tells_of_its_run", "test_the_reason_of_the_placement_is_told",
            "test_the_edges_own_time_is_told_without_the_queue"),
        "body and chunks travel whole": (
            "test_the_body_travels_whole_and_as_it_came", "test_the_backends_chunks_come_byte_for_byte",
            "test_the_body_travels_whole_but_for_the_model_and_the_wish_for_usage"),
        "programs are models": (
            "test_a_program_answers_as_a_chat", "test_what_a_program_did_stands_beside_its_whole_answer",
            "test_a_program_is_a_model"),
    },
    "errors": {
        "each status is its exception, with code, type and param": (
            "test_a_refusal_is_typed_and_tried_again_only_where_that_can_help", "test_its_errors_are_typed"),
        "codes are texts, whatever a backend sends": (
            "test_whatever_a_backend_calls_an_error_its_client_can_read_and_compare",),
        "a run that has begun is not begun again by its client": (
            "test_a_run_that_has_begun_and_failed_is_begun_once", "test_it_does_not_start_a_failed_run_again"),
        "retry-after-ms and retry-after are kept to": (
            "test_a_wait_in_milliseconds_is_kept_to_and_the_next_try_answers",
            "test_a_refusal_that_passes_says_when_to_the_millisecond", "test_what_a_backend_asks_to_wait_is_passed_on"),
        "404 is no such model, 503 a known one that nobody has ready": (
            "test_a_known_model_without_a_ready_node_is_503_and_an_unknown_one_404",),
        "a prompt that is too long is told as such": ("test_a_prompt_that_is_too_long_is_understood",),
        "a rate and a budget are told apart": ("test_a_key_that_is_used_up_is_told_apart_and_what_it_has_left",),
    },
    "streams": {
        "no ids, and the headers that proxies need": ("test_the_stream_has_no_ids_and_its_headers",),
        "nothing goes out before the first output or the heartbeat": (
            "test_nothing_goes_out_before_the_first_output",
            "test_what_happens_before_the_first_output_does_not_begin_the_stream"),
        "heartbeats are comments, or empty deltas": (
            "test_after_ten_seconds_a_comment_keeps_the_connection", "test_heartbeats_can_be_empty_deltas"),
        "an error in the middle is one that the client raises": ("test_a_failure_in_its_stream_is_an_error",),
    },
    "chunks": {
        "one id, one beginning, one end": ("test_a_programs_stream_is_made_of_chunks",),
        "calls have an index, an id, and arguments in texts": (
            "test_tool_calls_are_told_in_fragments_with_ids_and_strings", "test_parallel_calls_keep_their_pieces_apart",
            "test_a_call_without_an_id_gets_one_and_an_object_becomes_text"),
        "who called tools ends with tool_calls": (
            "test_only_the_word_stop_is_mended_behind_tool_calls", "test_a_whole_answer_is_mended_too"),
        "usage is counted always and told who asked": ("test_usage_is_for_who_asked_for_it",),
        "reasoning keeps its name": ("test_reasoning_is_told_apart_under_either_name",),
    },
    "models and headers": {
        "the list comes from memory, with contexts": (
            "test_models_are_listed_from_memory",
            "test_an_alias_says_what_stands_behind_it_and_the_context_is_told_where_it_is_known"),
        "ids may have slashes": ("test_a_model_is_found_by_each_of_its_names", "test_it_lists_and_shows_models"),
        "pages may ask where they are allowed to": (
            "test_a_configured_page_may_read_answers_and_refusals",
            "test_a_preflight_needs_no_key_and_allows_the_headers_that_were_asked_for"),
        "either header carries the key, which no backend sees": (
            "test_either_header_carries_the_key", "test_what_the_client_says_to_the_backend_travels_and_its_keys_do_not"),
    },
    "responses": {
        "codex does whole turns": (
            "test_a_whole_turn_with_a_tool_before_a_chat_backend", "test_a_turn_before_a_backend_that_has_the_api_itself",
            "test_two_calls_at_once_are_both_run"),
        "events come in their order with growing numbers, and the end has id and usage": (
            "test_a_message_is_told_in_the_order_that_clients_need", "test_its_own_accumulator_reads_the_stream"),
        "a failure has codex's words": (
            "test_a_failure_in_the_stream_is_told_in_codexs_words", "test_a_failure_ends_the_turn_and_says_why"),
        "tools that a backend lacks are translated or left out, never refused": (
            "test_tools_become_functions_and_the_rest_is_skipped_with_a_warning", "test_a_custom_tool_gets_its_own_text",
            "test_calls_of_a_namespace_reach_the_tool_that_is_meant", "test_a_search_for_tools_is_the_clients_to_run"),
        "starting_after goes on": (
            "test_a_finished_stream_is_told_again_from_any_place", "test_events_behind_a_loss_cannot_be_told_again",
            "test_background_work_is_polled_resumed_and_cancelled"),
        "prompt_cache_key is affinity": ("test_runs_of_one_conversation_belong_together",),
    },
    "messages": {
        "Claude Code does whole turns": (
            "test_a_whole_turn_with_a_tool_at_a_backend_that_knows_only_chats", "test_two_tools_at_once"),
        "query, version, beta and unknown fields travel on": (
            "test_the_body_travels_whole_with_the_headers_and_the_query_that_are_the_backends_business",),
        "sessions are affinity": ("test_one_session_has_one_affinity", "test_its_runs_are_known_by_their_session"),
        "the events, their order, and pings": ("test_blocks_follow_each_other", "test_the_heartbeat_is_a_ping"),
        "message_start has real tokens": ("test_the_prompts_tokens_stand_in_the_first_event_where_they_are_known",),
        "a backend's own error stays as it is": ("test_a_backends_own_error_stays_as_it_is",),
        "tokens are counted by who can, and never made up": (
            "test_a_backend_that_counts_is_asked", "test_where_nobody_can_count_there_is_no_such_thing"),
        "models are found in Anthropic's shape, in pages": (
            "test_anthropics_clients_find_their_own_shape", "test_anthropics_clients_read_it_in_pages"),
        "the request class is priority": ("test_what_nobody_waits_for_is_less_urgent",),
    },
    "others": {
        "Ollama's probes, lists and lines": (
            "test_its_probes_are_answered_without_a_key", "test_the_models_are_listed_with_tags_from_memory",
            "test_a_failure_after_output_is_one_line_and_the_end", "test_an_error_is_a_text",
            "test_a_full_queue_is_503_here", "test_it_chats_streaming_and_not"),
        "JavaScript's clients, LangChain and LiteLLM work as they are": (
            "test_openais_client_streams_calls_tools_and_knows_its_errors",
            "test_ollamas_client_streams_calls_tools_and_knows_its_errors", "test_the_ai_sdk_does_a_turn_with_a_tool",
            "test_both_of_its_models_answer_stream_and_call_tools",
            "test_each_of_its_providers_answers_streams_calls_tools_and_knows_the_errors"),
        "figures have OpenTelemetry's names": ("test_the_figures_tell_how_long_runs_take_and_what_they_use",),
        "the document tells every status": ("test_schemathesis_finds_no_fault_of_ours",),
    },
}
