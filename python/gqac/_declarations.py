"""The public headers, made by tools/make_python_declarations.py."""

from __future__ import annotations

from ctypes import (CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_double, c_float,
                    c_int, c_int64, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p)
from typing import Any

GQAC_OK = 0
GQAC_MISMATCH = 1
GQAC_USAGE = 2
GQAC_INVALID_MODEL = 3
GQAC_UNSUPPORTED = 4
GQAC_LIMIT = 5
GQAC_INVALID_INPUT = 6
GQAC_OUT_OF_RANGE = 7
GQAC_CAPACITY = 8
GQAC_RECOMPUTE = 9
GQAC_NO_MEMORY = 10
GQAC_INTERNAL = 11
GQAC_IO = 12
GQAC_ABSENT = 13
GQAC_ABORTED = 14
GQAC_STATUS_COUNT = 15
GQAC_LOG_NONE = 0
GQAC_LOG_WARNING = 1
GQAC_LOG_INFO = 2
GQAC_LOG_DEBUG = 3
GQAC_NONE = 0
GQAC_F32 = 1
GQAC_F16 = 2
GQAC_BF16 = 3
GQAC_F64 = 4
GQAC_I8 = 5
GQAC_U8 = 6
GQAC_I16 = 7
GQAC_U16 = 8
GQAC_I32 = 9
GQAC_U32 = 10
GQAC_I64 = 11
GQAC_U64 = 12
GQAC_BOOL = 13
GQAC_I4 = 14
GQAC_U4 = 15
GQAC_TOKEN = 16
GQAC_DTYPE_COUNT = 17
GQAC_TEXT_CONFIG = 1
GQAC_TEXT_TOKENIZER = 2
GQAC_TEXT_TEMPLATE = 4
GQAC_TEXT_ALL = 7
GQAC_LOGITS_ALL = -1
GQAC_TOP_MOST = 1024
GQAC_FINISH_EOS = 0
GQAC_FINISH_LENGTH = 1
GQAC_FINISH_STOP = 2
GQAC_FINISH_CANCELLED = 3
GQAC_FINISH_FAILED = 4
GQAC_EMIT_NONE = 0
GQAC_EMIT_GQAC = 1
GQAC_EMIT_ONNX = 2
GQAC_EMIT_TEXT = 3
GQAC_EQUIV_SPLIT = 0
GQAC_EQUIV_DECODE = 1
GQAC_EQUIV_IMPORT = 2
GQAC_EQUIV_PREFIX = 3
GQAC_EQUIV_SNAPSHOT = 4
GQAC_EQUIV_BAKED = 5
GQAC_DRAFTS_MOST = 64


class gqac_attachment(Structure):
    pass


class gqac_bake(Structure):
    pass


class gqac_call_part(Structure):
    pass


class gqac_candidate(Structure):
    pass


class gqac_comparison(Structure):
    pass


class gqac_device(Structure):
    pass


class gqac_diag(Structure):
    pass


class gqac_equiv_first(Structure):
    pass


class gqac_equiv_options(Structure):
    pass


class gqac_equiv_report(Structure):
    pass


class gqac_equiv_series(Structure):
    pass


class gqac_generate_event(Structure):
    pass


class gqac_generate_metrics(Structure):
    pass


class gqac_generate_request(Structure):
    pass


class gqac_generation(Structure):
    pass


class gqac_info(Structure):
    pass


class gqac_io(Structure):
    pass


class gqac_io_name(Structure):
    pass


class gqac_kv_pair(Structure):
    pass


class gqac_limits(Structure):
    pass


class gqac_log(Structure):
    pass


class gqac_logit_bias(Structure):
    pass


class gqac_memory(Structure):
    pass


class gqac_mixing(Structure):
    pass


class gqac_model_bytes(Structure):
    pass


class gqac_monitor(Structure):
    pass


class gqac_observed(Structure):
    pass


class gqac_op_use(Structure):
    pass


class gqac_options(Structure):
    pass


class gqac_pass_event(Structure):
    pass


class gqac_plan(Structure):
    pass


class gqac_plan_step(Structure):
    pass


class gqac_raised(Structure):
    pass


class gqac_remote_options(Structure):
    pass


class gqac_request(Structure):
    pass


class gqac_request_end(Structure):
    pass


class gqac_rewritten(Structure):
    pass


class gqac_sampling(Structure):
    pass


class gqac_scheduler_options(Structure):
    pass


class gqac_scheduler_statistics(Structure):
    pass


class gqac_scored_id(Structure):
    pass


class gqac_seq2seq_file(Structure):
    pass


class gqac_seq2seq_settings(Structure):
    pass


class gqac_seq2seq_source(Structure):
    pass


class gqac_sequence_options(Structure):
    pass


class gqac_session_options(Structure):
    pass


class gqac_snapshot_file(Structure):
    pass


class gqac_step_item(Structure):
    pass


class gqac_store_file(Structure):
    pass


class gqac_store_key(Structure):
    pass


class gqac_store_options(Structure):
    pass


class gqac_store_prefix(Structure):
    pass


class gqac_store_remote(Structure):
    pass


class gqac_store_statistics(Structure):
    pass


class gqac_tensor(Structure):
    pass


class gqac_text_settings(Structure):
    pass


class gqac_tokenize_options(Structure):
    pass


class gqac_tool_choice(Structure):
    pass


class gqac_unsupported(Structure):
    pass


gqac_pass_callback = CFUNCTYPE(None, c_void_p, POINTER(gqac_pass_event))
gqac_external_data = CFUNCTYPE(c_int, c_void_p, c_char_p, POINTER(c_void_p), POINTER(c_size_t), POINTER(gqac_diag))
gqac_task = CFUNCTYPE(None, c_void_p, c_int)
gqac_parallel_for = CFUNCTYPE(None, c_void_p, c_int, gqac_task, c_void_p)
gqac_generate_callback = CFUNCTYPE(c_bool, c_void_p, POINTER(gqac_generate_event))
gqac_logits_callback = CFUNCTYPE(c_bool, c_void_p, POINTER(c_float), c_int64, POINTER(c_int64), c_size_t)
gqac_observer = CFUNCTYPE(None, c_void_p, POINTER(gqac_observed))
gqac_request_token = CFUNCTYPE(c_bool, c_void_p, c_int64, c_int64)
gqac_request_began = CFUNCTYPE(None, c_void_p, c_int64, c_int64)
gqac_request_progress = CFUNCTYPE(None, c_void_p, c_int64, c_int64, c_int64)
gqac_request_row = CFUNCTYPE(None, c_void_p, c_int64, c_int64, POINTER(c_float), c_int64)
gqac_request_ended = CFUNCTYPE(None, c_void_p, POINTER(gqac_request_end))

gqac_attachment._fields_ = [
    ("name", c_char_p),
    ("data", c_void_p),
    ("bytes", c_size_t),
]

gqac_bake._fields_ = [
    ("size", c_size_t),
    ("ids", POINTER(c_int64)),
    ("n", c_int64),
    ("kv", c_char_p),
    ("threads", c_int),
    ("reserved", c_int),
]

gqac_call_part._fields_ = [
    ("size", c_size_t),
    ("text", c_void_p),
    ("length", c_size_t),
    ("name", c_void_p),
    ("arguments", c_void_p),
    ("id", c_void_p),
]

gqac_candidate._fields_ = [
    ("id", c_int64),
    ("logit", c_float),
]

gqac_comparison._fields_ = [
    ("relative", c_double),
    ("index", c_int64),
    ("actual", c_double),
    ("expected", c_double),
]

gqac_device._fields_ = [
    ("size", c_size_t),
    ("driver", c_char * 16),
    ("name", c_char * 128),
    ("version", c_char * 128),
    ("memory", c_uint64),
    ("lacks", c_char * 128),
]

gqac_diag._fields_ = [
    ("status", c_int),
    ("index", c_int),
    ("what", c_char * 768),
    ("where", c_char * 512),
    ("rule", c_char * 256),
    ("hint", c_char * 256),
]

gqac_equiv_first._fields_ = [
    ("size", c_size_t),
    ("position", c_int64),
    ("index", c_int64),
    ("layer", c_int),
    ("what", c_char_p),
    ("actual", c_double),
    ("expected", c_double),
    ("n_chunks", c_int),
    ("chunks", POINTER(c_int64)),
]

gqac_equiv_options._fields_ = [
    ("size", c_size_t),
    ("tokens", c_int64),
    ("ids", POINTER(c_int64)),
    ("embeddings", POINTER(c_float)),
    ("random", c_int64),
    ("n_chunks", c_int),
    ("chunks", POINTER(c_int64)),
    ("every_hit", c_bool),
    ("via", c_int),
    ("batch", c_int),
    ("n_threads", c_int),
    ("threads", POINTER(c_int)),
    ("n_kv", c_int),
    ("kv", POINTER(c_char_p)),
    ("budget", c_double),
    ("reference", c_void_p),
    ("fresh", c_void_p),
    ("monitor", POINTER(gqac_monitor)),
    ("on_plan", CFUNCTYPE(None, c_void_p, POINTER(gqac_equiv_report))),
    ("on_series", CFUNCTYPE(None, c_void_p, POINTER(gqac_equiv_series))),
    ("arg", c_void_p),
]

gqac_equiv_report._fields_ = [
    ("size", c_size_t),
    ("tokens", c_int64),
    ("vocabulary", c_int64),
    ("batch", c_int),
    ("ids", POINTER(c_int64)),
    ("logits", POINTER(c_float)),
    ("profile", c_char_p),
    ("planned", c_int),
    ("ran", c_int),
    ("compared", c_int64),
    ("differing", c_int64),
    ("reused_tokens", c_int64),
    ("computed_tokens", c_int64),
    ("relative", c_double),
    ("first", POINTER(gqac_equiv_first)),
    ("n_series", c_int),
    ("series", POINTER(gqac_equiv_series)),
]

gqac_equiv_series._fields_ = [
    ("size", c_size_t),
    ("kv", c_char_p),
    ("threads", c_int),
    ("planned", c_int),
    ("ran", c_int),
    ("compared", c_int64),
    ("differing", c_int64),
]

gqac_generate_event._fields_ = [
    ("size", c_size_t),
    ("request", c_int),
    ("step", c_int64),
    ("id", c_int64),
    ("probability", c_double),
    ("text", c_void_p),
    ("length", c_size_t),
    ("phase", c_void_p),
    ("eos", c_bool),
    ("log_probability", c_double),
    ("n_top", c_int),
    ("top", POINTER(gqac_scored_id)),
]

gqac_generate_metrics._fields_ = [
    ("size", c_size_t),
    ("time_to_first_token_ms", c_double),
    ("decode_tokens_per_second", c_double),
    ("n_forwards", c_size_t),
    ("forward_ms", POINTER(c_double)),
    ("forward_ms_min", c_double),
    ("forward_ms_max", c_double),
    ("forward_ms_mean", c_double),
    ("reused_tokens", c_int64),
    ("computed_tokens", c_int64),
    ("drafted_tokens", c_int64),
    ("accepted_tokens", c_int64),
]

gqac_generate_request._fields_ = [
    ("size", c_size_t),
    ("session", c_void_p),
    ("prompt", POINTER(c_int64)),
    ("n_prompt", c_size_t),
    ("max_new", c_int64),
    ("min_length", c_int64),
    ("sampling", POINTER(gqac_sampling)),
    ("n_eos", c_int),
    ("eos", POINTER(c_int64)),
    ("n_stop", c_int),
    ("stop", POINTER(c_char_p)),
    ("chunk", c_int64),
    ("on_token", gqac_generate_callback),
    ("arg", c_void_p),
    ("clock", CFUNCTYPE(c_double, c_void_p)),
    ("clock_arg", c_void_p),
    ("on_logits", gqac_logits_callback),
    ("logits_arg", c_void_p),
    ("n_top", c_int64),
    ("speculate", c_int64),
    ("draft", c_void_p),
    ("draft_context", c_void_p),
    ("constraint", c_void_p),
    ("ids_only", c_bool),
]

gqac_generation._fields_ = [
    ("size", c_size_t),
    ("n_ids", c_size_t),
    ("ids", POINTER(c_int64)),
    ("text", c_void_p),
    ("length", c_size_t),
    ("finish", c_int),
    ("metrics", gqac_generate_metrics),
]

gqac_info._fields_ = [
    ("size", c_size_t),
    ("format", c_char_p),
    ("producer", c_char_p),
    ("ir_version", c_int64),
    ("opset", c_int64),
    ("n_ops", c_int),
    ("ops", POINTER(gqac_op_use)),
    ("n_unsupported", c_int),
    ("unsupported", POINTER(gqac_unsupported)),
    ("n_inputs", c_int),
    ("n_outputs", c_int),
    ("inputs", POINTER(gqac_io)),
    ("outputs", POINTER(gqac_io)),
    ("n_kv_pairs", c_int),
    ("kv_pairs", POINTER(gqac_kv_pair)),
    ("n_mixing", c_int),
    ("mixing", POINTER(gqac_mixing)),
    ("n_raised", c_int),
    ("raised", POINTER(gqac_raised)),
    ("parameters", c_int64),
    ("target", c_char_p),
    ("math", c_char_p),
    ("profile", c_char_p),
    ("source_digest", c_char_p),
    ("baked_tokens", c_int64),
    ("baked_bytes", c_int64),
    ("baked_kind", c_char_p),
]

gqac_io._fields_ = [
    ("size", c_size_t),
    ("name", c_char_p),
    ("dtype", c_int),
    ("rank", c_int),
    ("shape", c_char_p),
]

gqac_io_name._fields_ = [
    ("file_name", c_char_p),
    ("name", c_char_p),
]

gqac_kv_pair._fields_ = [
    ("size", c_size_t),
    ("past", c_char_p),
    ("present", c_char_p),
    ("heads", c_int64),
    ("head_size", c_int64),
    ("dtype", c_int),
    ("rows", c_int64),
    ("tail", c_int64),
    ("window", c_int64),
]

gqac_limits._fields_ = [
    ("size", c_size_t),
    ("model_bytes", c_int64),
    ("nodes", c_int64),
    ("tensor_elements", c_int64),
    ("context", c_int64),
    ("compile_bytes", c_int64),
    ("compile_ms", c_int64),
    ("template_steps", c_int64),
    ("memory_bytes", c_int64),
]

gqac_log._fields_ = [
    ("size", c_size_t),
    ("line", CFUNCTYPE(None, c_void_p, c_int, c_char_p)),
    ("arg", c_void_p),
    ("level", c_int),
]

gqac_logit_bias._fields_ = [
    ("id", c_int64),
    ("bias", c_double),
]

gqac_memory._fields_ = [
    ("size", c_size_t),
    ("weights", c_int64),
    ("kv_block_tokens", c_int64),
    ("kv_block", c_int64),
    ("kv_blocks", c_int64),
    ("prefill", c_int64),
    ("decode", c_int64),
    ("kv_state", c_int64),
    ("kv_states", c_int64),
    ("kv_tail", c_int64),
    ("kv_tails", c_int64),
    ("prefill_scratch", c_int64),
    ("decode_scratch", c_int64),
    ("device_weights", c_int64),
    ("device_kv", c_int64),
    ("device_prefill", c_int64),
    ("device_decode", c_int64),
    ("kv_window", c_int64),
    ("kv_windows", c_int64),
]

gqac_mixing._fields_ = [
    ("size", c_size_t),
    ("op", c_char_p),
    ("node", c_char_p),
]

gqac_model_bytes._fields_ = [
    ("size", c_size_t),
    ("data", c_void_p),
    ("bytes", c_size_t),
    ("external", gqac_external_data),
    ("arg", c_void_p),
    ("copy", c_bool),
]

gqac_monitor._fields_ = [
    ("size", c_size_t),
    ("abort", CFUNCTYPE(c_bool, c_void_p)),
    ("progress", CFUNCTYPE(None, c_void_p, c_int64, c_int64)),
    ("arg", c_void_p),
]

gqac_observed._fields_ = [
    ("size", c_size_t),
    ("value", c_char_p),
    ("node", c_char_p),
    ("op", c_char_p),
    ("kernel", c_char_p),
    ("tensor", POINTER(gqac_tensor)),
]

gqac_op_use._fields_ = [
    ("op", c_char_p),
    ("count", c_int),
]

gqac_options._fields_ = [
    ("size", c_size_t),
    ("target", c_char_p),
    ("math", c_char_p),
    ("seqlens_k", c_char_p),
    ("legacy_window", c_bool),
    ("per_row_quant", c_bool),
    ("stateless", c_bool),
    ("model_root", c_char_p),
    ("stop_after", c_char_p),
    ("disable", POINTER(c_char_p)),
    ("after", gqac_pass_callback),
    ("after_arg", c_void_p),
    ("n_io_names", c_int),
    ("io_names", POINTER(gqac_io_name)),
    ("n_attachments", c_int),
    ("attachments", POINTER(gqac_attachment)),
    ("memory_budget", c_int64),
    ("monitor", POINTER(gqac_monitor)),
    ("bytes", POINTER(gqac_model_bytes)),
    ("log", POINTER(gqac_log)),
    ("device", c_int),
    ("reserved", c_int),
    ("bake", POINTER(gqac_bake)),
    ("limits", POINTER(gqac_limits)),
]

gqac_pass_event._fields_ = [
    ("size", c_size_t),
    ("pass", c_char_p),
    ("seconds", c_double),
    ("module", c_void_p),
]

gqac_plan_step._fields_ = [
    ("size", c_size_t),
    ("node", c_char_p),
    ("op", c_char_p),
    ("kernel", c_char_p),
    ("n_fused", c_int),
    ("fused", POINTER(c_char_p)),
    ("dtype", c_int),
    ("shape", c_char_p),
    ("weight_bytes", c_int64),
    ("cache_bytes", c_int64),
    ("input_bytes", c_int64),
    ("output_bytes", c_int64),
    ("barriers", c_int),
]

gqac_plan._fields_ = [
    ("size", c_size_t),
    ("past", c_int64),
    ("n_steps", c_int),
    ("steps", POINTER(gqac_plan_step)),
    ("total", gqac_plan_step),
]

gqac_raised._fields_ = [
    ("size", c_size_t),
    ("what", c_char_p),
    ("node", c_char_p),
    ("stop", c_char_p),
    ("op", c_char_p),
    ("why", c_char_p),
]

gqac_remote_options._fields_ = [
    ("size", c_size_t),
    ("address", c_char_p),
    ("ca_file", c_char_p),
    ("cert_file", c_char_p),
    ("key_file", c_char_p),
    ("report", CFUNCTYPE(None, c_void_p, c_char_p, c_char_p)),
    ("arg", c_void_p),
]

gqac_request._fields_ = [
    ("size", c_size_t),
    ("prompt", POINTER(c_int64)),
    ("n_prompt", c_size_t),
    ("max_new", c_int64),
    ("n_eos", c_int),
    ("eos", POINTER(c_int64)),
    ("sampling", POINTER(gqac_sampling)),
    ("on_logits", gqac_logits_callback),
    ("logits_arg", c_void_p),
    ("priority", c_int),
    ("from", c_void_p),
    ("tenant", c_char_p),
    ("on_token", gqac_request_token),
    ("on_progress", gqac_request_progress),
    ("on_end", gqac_request_ended),
    ("arg", c_void_p),
    ("on_row", gqac_request_row),
    ("cold", c_bool),
    ("constraint", c_void_p),
    ("on_begin", gqac_request_began),
]

gqac_request_end._fields_ = [
    ("size", c_size_t),
    ("request", c_int64),
    ("finish", c_int),
    ("diag", POINTER(gqac_diag)),
    ("n_ids", c_size_t),
    ("ids", POINTER(c_int64)),
    ("reused_tokens", c_int64),
    ("computed_tokens", c_int64),
    ("preemptions", c_int64),
    ("sequence", c_void_p),
    ("drafted_tokens", c_int64),
    ("accepted_tokens", c_int64),
]

gqac_rewritten._fields_ = [
    ("size", c_size_t),
    ("changes", c_int64),
    ("counted", c_char_p),
    ("n_files", c_int),
    ("files", POINTER(c_char_p)),
]

gqac_sampling._fields_ = [
    ("size", c_size_t),
    ("sample", c_bool),
    ("temperature", c_double),
    ("top_k", c_int64),
    ("top_p", c_double),
    ("min_p", c_double),
    ("repetition_penalty", c_double),
    ("seed", c_uint64),
    ("request", c_uint64),
    ("presence_penalty", c_double),
    ("frequency_penalty", c_double),
    ("n_prompt", c_size_t),
    ("n_bias", c_int),
    ("bias", POINTER(gqac_logit_bias)),
    ("rules", c_void_p),
    ("max_length", c_size_t),
]

gqac_scheduler_options._fields_ = [
    ("size", c_size_t),
    ("tokens", c_int64),
    ("running", c_int64),
    ("kv", c_char_p),
    ("store", c_void_p),
    ("speculate", c_int64),
    ("clock", CFUNCTYPE(c_double, c_void_p)),
    ("clock_arg", c_void_p),
]

gqac_scheduler_statistics._fields_ = [
    ("size", c_size_t),
    ("waiting", c_int64),
    ("running", c_int64),
    ("ended", c_int64),
    ("steps", c_int64),
    ("reused_tokens", c_int64),
    ("computed_tokens", c_int64),
    ("new_tokens", c_int64),
    ("preemptions", c_int64),
    ("drafted_tokens", c_int64),
    ("accepted_tokens", c_int64),
]

gqac_scored_id._fields_ = [
    ("id", c_int64),
    ("log_probability", c_double),
]

gqac_seq2seq_file._fields_ = [
    ("path", c_char_p),
    ("program", c_void_p),
]

gqac_seq2seq_settings._fields_ = [
    ("size", c_size_t),
    ("features", c_bool),
    ("cached", c_bool),
    ("start", c_int64),
    ("n_eos", c_int),
    ("eos", POINTER(c_int64)),
    ("vocabulary", c_int64),
    ("rules", c_void_p),
    ("not_obeyed", c_char_p),
]

gqac_seq2seq_source._fields_ = [
    ("size", c_size_t),
    ("ids", POINTER(c_int64)),
    ("n_ids", c_size_t),
    ("features", POINTER(gqac_tensor)),
]

gqac_sequence_options._fields_ = [
    ("size", c_size_t),
    ("kv", c_char_p),
    ("capacity", c_int64),
    ("final_length", c_int64),
]

gqac_session_options._fields_ = [
    ("size", c_size_t),
    ("kv", c_char_p),
    ("context", c_int64),
    ("store", c_void_p),
    ("tenant", c_char_p),
]

gqac_snapshot_file._fields_ = [
    ("size", c_size_t),
    ("bytes", c_uint64),
    ("model", c_void_p),
    ("profile", c_void_p),
    ("kind", c_void_p),
    ("length", c_int64),
    ("first", c_int64),
    ("n_ids", c_int64),
    ("ids", POINTER(c_int64)),
    ("states", c_int64),
    ("tables", c_uint64),
    ("state_positions", POINTER(c_int64)),
]

gqac_step_item._fields_ = [
    ("size", c_size_t),
    ("sequence", c_void_p),
    ("tokens", POINTER(c_int64)),
    ("count", c_int64),
    ("n_logits", c_int64),
    ("position", POINTER(c_int64)),
    ("embeddings", POINTER(c_float)),
    ("n_top", c_int64),
    ("drafts", c_int64),
]

gqac_store_file._fields_ = [
    ("size", c_size_t),
    ("name", c_char_p),
    ("used", c_int64),
    ("bytes", c_int64),
    ("file", POINTER(gqac_snapshot_file)),
    ("why", gqac_diag),
]

gqac_store_key._fields_ = [
    ("bytes", c_ubyte * 32),
]

gqac_store_options._fields_ = [
    ("size", c_size_t),
    ("budget", c_int64),
    ("tenant_budget", c_int64),
    ("folder", c_char_p),
    ("folder_budget", c_int64),
    ("remote", POINTER(gqac_store_remote)),
    ("remote_ms", c_int64),
]

gqac_store_prefix._fields_ = [
    ("tenant", c_void_p),
    ("length", c_int64),
    ("uses", c_int64),
]

gqac_store_remote._fields_ = [
    ("size", c_size_t),
    ("find", CFUNCTYPE(c_bool, c_void_p, c_int64, POINTER(gqac_store_key), c_size_t, POINTER(c_size_t))),
    ("get", CFUNCTYPE(c_bool, c_void_p, c_int64, POINTER(gqac_store_key), c_void_p, c_size_t, POINTER(c_size_t))),
    ("put", CFUNCTYPE(c_bool, c_void_p, c_int64, POINTER(gqac_store_key), c_void_p, c_size_t)),
    ("arg", c_void_p),
]

gqac_store_statistics._fields_ = [
    ("size", c_size_t),
    ("hits", c_int64),
    ("misses", c_int64),
    ("reused_tokens", c_int64),
    ("computed_tokens", c_int64),
    ("evictions", c_int64),
    ("bytes", c_int64),
    ("blocks", c_int64),
    ("prefixes", c_int64),
    ("tenants", c_int64),
    ("loaded_files", c_int64),
    ("damaged_files", c_int64),
    ("saved_files", c_int64),
    ("remote_hits", c_int64),
    ("remote_misses", c_int64),
    ("remote_errors", c_int64),
    ("remote_damaged", c_int64),
    ("remote_saved", c_int64),
    ("remote_read_bytes", c_int64),
    ("remote_written_bytes", c_int64),
]

gqac_tensor._fields_ = [
    ("dtype", c_int),
    ("rank", c_int),
    ("dims", c_int64 * 8),
    ("data", c_void_p),
]

gqac_text_settings._fields_ = [
    ("size", c_size_t),
    ("has_config", c_bool),
    ("has_tokenizer", c_bool),
    ("has_template", c_bool),
    ("tokenizer_refusal", POINTER(gqac_diag)),
    ("template_refusal", POINTER(gqac_diag)),
    ("bos", c_int64),
    ("pad", c_int64),
    ("n_eos", c_int),
    ("eos", POINTER(c_int64)),
    ("context_length", c_int64),
    ("vocab_size", c_int64),
    ("do_sample", c_bool),
    ("temperature", c_double),
    ("top_p", c_double),
    ("repetition_penalty", c_double),
    ("top_k", c_int64),
    ("min_length", c_int64),
    ("max_length", c_int64),
    ("unsupported", c_char_p),
    ("n_io_names", c_int),
    ("io_names", POINTER(gqac_io_name)),
    ("rules", c_void_p),
    ("not_obeyed", c_char_p),
    ("no_repeat_ngram_size", c_int64),
]

gqac_tokenize_options._fields_ = [
    ("size", c_size_t),
    ("special", c_bool),
    ("plain", c_bool),
]

gqac_tool_choice._fields_ = [
    ("size", c_size_t),
    ("name", c_char_p),
    ("parallel", c_bool),
    ("optional", c_bool),
]

gqac_unsupported._fields_ = [
    ("size", c_size_t),
    ("op", c_char_p),
    ("reason", c_char_p),
    ("count", c_int),
    ("first", c_char_p),
]

FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "gqac_status_name": (c_char_p, [c_int]),
    "gqac_status_meaning": (c_char_p, [c_int]),
    "gqac_status_exit_code": (c_int, [c_int]),
    "gqac_limit_at": (c_bool, [c_int, POINTER(gqac_limits), POINTER(c_void_p), POINTER(c_void_p), POINTER(c_int64)]),
    "gqac_limits_set": (c_int, [POINTER(gqac_limits), c_char_p, c_int64, POINTER(gqac_diag)]),
    "gqac_dtype_name": (c_char_p, [c_int]),
    "gqac_dtype_bits": (c_int, [c_int]),
    "gqac_dtype_onnx": (c_int, [c_int]),
    "gqac_dtype_npy": (c_char_p, [c_int]),
    "gqac_dtype_is_float": (c_bool, [c_int]),
    "gqac_dtype_is_signed": (c_bool, [c_int]),
    "gqac_dtype_from_name": (c_int, [c_char_p]),
    "gqac_dtype_from_onnx": (c_int, [c_int64]),
    "gqac_tensor_count": (c_int64, [POINTER(gqac_tensor)]),
    "gqac_tensor_bytes": (c_size_t, [POINTER(gqac_tensor)]),
    "gqac_shape_bytes": (c_int, [c_int, c_int, POINTER(c_int64), POINTER(c_size_t), POINTER(gqac_diag)]),
    "gqac_release": (None, [c_void_p]),
    "gqac_pass_text": (c_void_p, [POINTER(gqac_pass_event)]),
    "gqac_pass_at": (c_bool, [c_int, POINTER(c_void_p), POINTER(c_void_p)]),
    "gqac_program_open": (c_int, [c_char_p, POINTER(gqac_options), POINTER(c_void_p), POINTER(gqac_diag)]),
    "gqac_program_free": (None, [c_void_p]),
    "gqac_program_inputs": (c_int, [c_void_p, POINTER(POINTER(gqac_io))]),
    "gqac_program_outputs": (c_int, [c_void_p, POINTER(POINTER(gqac_io))]),
    "gqac_program_kv_pairs": (c_int, [c_void_p, POINTER(POINTER(gqac_kv_pair))]),
    "gqac_kv_pair_rows": (c_int64, [POINTER(gqac_kv_pair), c_int64]),
    "gqac_program_mixing": (c_int, [c_void_p, POINTER(POINTER(gqac_mixing))]),
    "gqac_program_is_stateless": (c_bool, [c_void_p]),
    "gqac_program_vocabulary": (c_int64, [c_void_p]),
    "gqac_program_embedding_size": (c_int64, [c_void_p]),
    "gqac_program_max_tokens": (c_int64, [c_void_p]),
    "gqac_program_rope_threshold": (c_int, [c_void_p, POINTER(c_int64), POINTER(gqac_diag)]),
    "gqac_program_memory_used": (c_int64, [c_void_p]),
    "gqac_program_weight_bytes": (c_int64, [c_void_p]),
    "gqac_program_memory": (c_int, [c_void_p, c_int64, c_int64, POINTER(gqac_memory), POINTER(gqac_diag)]),
    "gqac_program_memory_of": (c_int, [c_void_p, c_char_p, c_int64, c_int64, POINTER(gqac_memory), POINTER(gqac_diag)]),
    "gqac_program_last_logits": (c_bool, [c_void_p]),
    "gqac_program_padding": (c_bool, [c_void_p, POINTER(POINTER(gqac_mixing))]),
    "gqac_program_profile": (c_char_p, [c_void_p]),
    "gqac_program_tolerance": (c_double, [c_void_p]),
    "gqac_program_level": (c_char_p, [c_void_p]),
    "gqac_target_level": (c_int, [c_char_p, POINTER(c_void_p), POINTER(gqac_diag)]),
    "gqac_text_model_path": (c_int, [c_char_p, c_void_p, c_size_t, POINTER(gqac_diag)]),
    "gqac_text_open": (c_int, [c_char_p, c_uint, POINTER(c_void_p), POINTER(gqac_diag)]),
    "gqac_text_open_within": (c_int, [c_char_p, c_uint, POINTER(gqac_limits), POINTER(c_void_p), POINTER(gqac_diag)]),
    "gqac_text_free": (None, [c_void_p]),
    "gqac_model_open": (c_int, [c_char_p, POINTER(gqac_options), c_uint, POINTER(c_void_p), POINTER(c_void_p), POINTER(gqac_diag)]),
    "gqac_token_rules_digest": (c_char_p, [c_void_p]),
    "gqac_token_rules_beyond": (c_int64, [c_void_p, c_int64]),
    "gqac_text_get_settings": (POINTER(gqac_text_settings), [c_void_p]),
    "gqac_text_attachments": (c_int, [c_void_p, POINTER(POINTER(gqac_attachment))]),
    "gqac_text_tokenize": (c_int, [c_void_p, c_char_p, c_size_t, c_bool, POINTER(POINTER(c_int64)), POINTER(c_size_t), POINTER(gqac_diag)]),
    "gqac_text_tokenize_with": (c_int, [c_void_p, c_char_p, c_size_t, POINTER(gqac_tokenize_options), POINTER(POINTER(c_int64)), POINTER(c_size_t), POINTER(gqac_diag)]),
    "gqac_text_token_bytes": (c_int, [c_void_p, c_int64, POINTER(c_void_p), POINTER(c_size_t), POINTER(c_bool), POINTER(gqac_diag)]),
    "gqac_text_detokenize": (c_int, [c_void_p, POINTER(c_int64), c_size_t, c_bool, POINTER(c_void_p), POINTER(c_size_t), POINTER(gqac_diag)]),
    "gqac_text_stream_create": (c_int, [c_void_p, POINTER(c_void_p), POINTER(gqac_diag)]),
    "gqac_text_stream_free": (None, [c_void_p]),
    "gqac_text_stream_push": (c_int, [c_void_p, c_int64, POINTER(c_void_p), POINTER(c_size_t), POINTER(gqac_diag)]),
    "gqac_text_stream_finish": (c_int, [c_void_p, POINTER(c_void_p), POINTER(c_size_t), POINTER(gqac_diag)]),
    "gqac_reply_create": (c_int, [c_void_p, c_int, POINTER(c_char_p), POINTER(c_void_p), POINTER(gqac_diag)]),
    "gqac_reply_free": (None, [c_void_p]),
    "gqac_reply_push": (c_int, [c_void_p, c_int64, POINTER(gqac_diag)]),
    "gqac_reply_finish": (c_int, [c_void_p, POINTER(gqac_diag)]),
    "gqac_reply_stopped": (c_bool, [c_void_p]),
    "gqac_reply_take": (c_void_p, [c_void_p, POINTER(c_size_t)]),
    "gqac_reply_text": (c_void_p, [c_void_p, POINTER(c_size_t)]),
    "gqac_text_render": (c_int, [c_void_p, c_char_p, POINTER(c_void_p), POINTER(c_size_t), POINTER(gqac_diag)]),
    "gqac_calls_create": (c_int, [c_void_p, c_char_p, POINTER(c_void_p), POINTER(gqac_diag)]),
    "gqac_calls_free": (None, [c_void_p]),
    "gqac_reply_show_calls": (None, [c_void_p, c_void_p]),
    "gqac_calls_push": (c_int, [c_void_p, c_char_p, c_size_t, POINTER(gqac_diag)]),
    "gqac_calls_finish": (c_int, [c_void_p, POINTER(gqac_diag)]),
    "gqac_calls_next": (c_bool, [c_void_p, POINTER(gqac_call_part)]),
    "gqac_constraint_from_grammar": (c_int, [c_void_p, c_char_p, c_size_t, POINTER(c_void_p), POINTER(gqac_diag)]),
    "gqac_constraint_from_schema": (c_int, [c_void_p, c_char_p, c_size_t, POINTER(c_void_p), POINTER(gqac_diag)]),
    "gqac_constraint_from_tools": (c_int, [c_void_p, c_char_p, c_size_t, POINTER(gqac_tool_choice), POINTER(c_void_p), POINTER(gqac_diag)]),
    "gqac_constraint_free": (None, [c_void_p]),
    "gqac_constraint_begin": (c_int, [c_void_p, POINTER(c_void_p), POINTER(gqac_diag)]),
    "gqac_constraint_fork": (c_int, [c_void_p, POINTER(c_void_p), POINTER(gqac_diag)]),
    "gqac_constraint_state_free": (None, [c_void_p]),
    "gqac_constraint_mask": (c_int, [c_void_p, POINTER(c_float), c_int64, POINTER(c_int64), c_int, POINTER(gqac_diag)]),
    "gqac_constraint_push": (c_int, [c_void_p, c_int64, POINTER(gqac_diag)]),
    "gqac_constraint_ends": (c_int, [c_void_p, POINTER(c_bool), POINTER(c_bool), POINTER(gqac_diag)]),
    "gqac_sample": (c_int, [POINTER(gqac_sampling), POINTER(c_float), c_int64, POINTER(c_int64), c_size_t, POINTER(c_int64), POINTER(c_double), POINTER(gqac_diag)]),
    "gqac_sampling_top": (c_int64, [POINTER(gqac_sampling)]),
    "gqac_sample_top": (c_int, [POINTER(gqac_sampling), POINTER(gqac_candidate), c_int64, c_int64, c_uint64, POINTER(c_int64), POINTER(gqac_diag)]),
    "gqac_sampling_check": (c_int, [POINTER(gqac_sampling), c_int64, POINTER(gqac_diag)]),
    "gqac_log_probabilities": (c_int, [POINTER(c_float), c_int64, c_int64, POINTER(c_double), c_int64, POINTER(gqac_scored_id), POINTER(c_int), POINTER(gqac_diag)]),
    "gqac_threads_default": (c_int, []),
    "gqac_threads_create": (c_int, [c_int, POINTER(c_void_p), POINTER(gqac_diag)]),
    "gqac_threads_wrap": (c_int, [c_int, gqac_parallel_for, c_void_p, POINTER(c_void_p), POINTER(gqac_diag)]),
    "gqac_threads_count": (c_int, [c_void_p]),
    "gqac_threads_free": (None, [c_void_p]),
    "gqac_context_create": (c_int, [c_void_p, c_int, POINTER(c_void_p), POINTER(gqac_diag)]),
    "gqac_context_create_on": (c_int, [c_void_p, c_void_p, POINTER(c_void_p), POINTER(gqac_diag)]),
    "gqac_context_free": (None, [c_void_p]),
    "gqac_context_trim": (None, [c_void_p]),
    "gqac_context_program": (c_void_p, [c_void_p]),
    "gqac_context_set_monitor": (c_int, [c_void_p, POINTER(gqac_monitor), POINTER(gqac_monitor), POINTER(gqac_diag)]),
    "gqac_sequence_create": (c_int, [c_void_p, POINTER(gqac_sequence_options), POINTER(c_void_p), POINTER(gqac_diag)]),
    "gqac_sequence_begin": (c_int, [c_void_p, POINTER(c_int64), c_int64, POINTER(gqac_sequence_options), POINTER(c_void_p), POINTER(c_int64), POINTER(gqac_diag)]),
    "gqac_sequence_free": (None, [c_void_p]),
    "gqac_sequence_program": (c_void_p, [c_void_p]),
    "gqac_sequence_length": (c_int64, [c_void_p]),
    "gqac_sequence_kind": (c_char_p, [c_void_p]),
    "gqac_sequence_profile": (c_char_p, [c_void_p, c_void_p, c_size_t]),
    "gqac_sequence_describe": (c_char_p, [c_void_p, c_void_p, c_size_t]),
    "gqac_sequence_bytes": (c_size_t, [c_void_p, POINTER(c_size_t)]),
    "gqac_sequence_ids": (POINTER(c_int64), [c_void_p, POINTER(c_int64), POINTER(c_int64)]),
    "gqac_sequence_rewind": (c_int, [c_void_p, c_int64, POINTER(gqac_diag)]),
    "gqac_sequence_missing": (c_int64, [c_void_p]),
    "gqac_sequence_computed": (c_int64, [c_void_p]),
    "gqac_sequence_fork": (c_int, [c_void_p, POINTER(c_void_p), POINTER(gqac_diag)]),
    "gqac_sequence_export": (c_int, [c_void_p, c_char_p, c_void_p, c_size_t, POINTER(gqac_diag)]),
    "gqac_sequence_import": (c_int, [c_void_p, c_int, POINTER(c_char_p), POINTER(gqac_tensor), POINTER(gqac_diag)]),
    "gqac_sequence_save_bytes": (c_size_t, [c_void_p]),
    "gqac_sequence_save": (c_int, [c_void_p, c_void_p, c_size_t, POINTER(gqac_diag)]),
    "gqac_sequence_load": (c_int, [c_void_p, POINTER(gqac_sequence_options), c_void_p, c_size_t, POINTER(c_void_p), POINTER(gqac_diag)]),
    "gqac_step": (c_int, [c_void_p, c_int, POINTER(gqac_step_item), POINTER(gqac_diag)]),
    "gqac_sequence_append": (c_int, [c_void_p, c_void_p, POINTER(c_int64), c_int64, c_int64, POINTER(gqac_diag)]),
    "gqac_context_logits": (POINTER(c_float), [c_void_p, c_int, POINTER(c_int64), POINTER(c_int64)]),
    "gqac_context_top": (POINTER(gqac_candidate), [c_void_p, c_int, POINTER(c_int64), POINTER(c_int64)]),
    "gqac_snapshot_take": (c_int, [c_void_p, POINTER(c_void_p), POINTER(gqac_diag)]),
    "gqac_snapshot_free": (None, [c_void_p]),
    "gqac_snapshot_restore": (c_int, [c_void_p, POINTER(gqac_sequence_options), POINTER(c_void_p), POINTER(gqac_diag)]),
    "gqac_program_baked": (c_void_p, [c_void_p]),
    "gqac_snapshot_program": (c_void_p, [c_void_p]),
    "gqac_snapshot_length": (c_int64, [c_void_p]),
    "gqac_snapshot_missing": (c_int64, [c_void_p]),
    "gqac_snapshot_ids": (POINTER(c_int64), [c_void_p, POINTER(c_int64), POINTER(c_int64)]),
    "gqac_snapshot_bytes": (c_size_t, [c_void_p, POINTER(c_size_t)]),
    "gqac_snapshot_save": (c_int, [c_void_p, c_char_p, POINTER(gqac_diag)]),
    "gqac_snapshot_load": (c_int, [c_void_p, c_char_p, POINTER(c_void_p), POINTER(gqac_diag)]),
    "gqac_snapshot_file_open": (c_int, [c_char_p, c_bool, POINTER(POINTER(gqac_snapshot_file)), POINTER(gqac_diag)]),
    "gqac_snapshot_file_is": (c_int, [c_char_p, POINTER(c_bool), POINTER(gqac_diag)]),
    "gqac_snapshot_file_free": (None, [POINTER(gqac_snapshot_file)]),
    "gqac_store_create": (c_int, [c_void_p, POINTER(gqac_store_options), POINTER(c_void_p), POINTER(gqac_diag)]),
    "gqac_store_free": (None, [c_void_p]),
    "gqac_store_program": (c_void_p, [c_void_p]),
    "gqac_store_open": (c_int, [c_void_p, c_char_p, POINTER(c_int64), c_int64, POINTER(gqac_sequence_options), POINTER(c_void_p), POINTER(c_int64), POINTER(gqac_diag)]),
    "gqac_store_add": (c_int, [c_void_p, c_char_p, c_void_p, POINTER(gqac_diag)]),
    "gqac_store_save": (c_int, [c_void_p, c_char_p, c_void_p, POINTER(gqac_diag)]),
    "gqac_store_match": (c_int64, [c_void_p, c_char_p, c_char_p, POINTER(c_int64), c_int64]),
    "gqac_store_pin": (c_int, [c_void_p, c_char_p, c_char_p, POINTER(c_int64), c_int64, c_bool, POINTER(gqac_diag)]),
    "gqac_store_evict": (None, [c_void_p, c_int64]),
    "gqac_store_get_statistics": (c_int, [c_void_p, POINTER(gqac_store_statistics), POINTER(gqac_diag)]),
    "gqac_store_prefixes": (c_int, [c_void_p, c_int, POINTER(gqac_store_prefix)]),
    "gqac_prefix_add": (c_int, [c_void_p, c_char_p, POINTER(c_int64), c_int64, POINTER(gqac_sequence_options), c_int, POINTER(c_char_p), POINTER(gqac_tensor), POINTER(gqac_diag)]),
    "gqac_prefix_lookup": (c_int, [c_void_p, c_char_p, POINTER(c_int64), c_int64, POINTER(gqac_sequence_options), c_int, POINTER(c_char_p), POINTER(gqac_tensor), c_bool, POINTER(c_int64), POINTER(gqac_diag)]),
    "gqac_store_folder_list": (c_int, [c_char_p, c_bool, POINTER(POINTER(gqac_store_file)), POINTER(c_size_t), POINTER(gqac_diag)]),
    "gqac_store_folder_free": (None, [POINTER(gqac_store_file), c_size_t]),
    "gqac_store_folder_clean": (c_int, [c_char_p, c_int64, POINTER(c_int64), POINTER(gqac_diag)]),
    "gqac_store_folder_add": (c_int, [c_char_p, c_char_p, c_char_p, POINTER(c_bool), POINTER(gqac_diag)]),
    "gqac_session_create": (c_int, [c_void_p, POINTER(gqac_session_options), POINTER(c_void_p), POINTER(gqac_diag)]),
    "gqac_session_free": (None, [c_void_p]),
    "gqac_session_kind": (c_char_p, [c_void_p]),
    "gqac_session_ids": (POINTER(c_int64), [c_void_p, POINTER(c_size_t)]),
    "gqac_session_sequence": (c_void_p, [c_void_p]),
    "gqac_session_restore": (c_int, [c_void_p, c_void_p, POINTER(gqac_diag)]),
    "gqac_forward": (c_int, [c_void_p, c_void_p, POINTER(c_int64), c_int64, POINTER(gqac_diag)]),
    "gqac_forward_stateless": (c_int, [c_void_p, c_void_p, POINTER(c_int64), c_int64, POINTER(gqac_tensor), POINTER(gqac_diag)]),
    "gqac_prefill": (c_int, [c_void_p, c_void_p, POINTER(c_int64), c_int64, POINTER(gqac_diag)]),
    "gqac_decode": (c_int, [c_void_p, c_void_p, c_int64, c_int64, POINTER(gqac_diag)]),
    "gqac_finish_name": (c_char_p, [c_int]),
    "gqac_generate": (c_int, [c_void_p, c_void_p, c_int, POINTER(gqac_generate_request), POINTER(POINTER(gqac_generation)), POINTER(gqac_diag)]),
    "gqac_generation_free": (None, [POINTER(gqac_generation)]),
    "gqac_compile": (c_int, [c_char_p, POINTER(gqac_options), c_int, c_char_p, POINTER(gqac_diag)]),
    "gqac_rewrite_at": (c_bool, [c_int, POINTER(c_void_p), POINTER(c_void_p)]),
    "gqac_rewrite": (c_int, [c_char_p, c_char_p, POINTER(gqac_options), c_char_p, POINTER(POINTER(gqac_rewritten)), POINTER(gqac_diag)]),
    "gqac_device_count": (c_int, [POINTER(c_int), POINTER(gqac_diag)]),
    "gqac_device_at": (c_int, [c_int, POINTER(gqac_device), POINTER(gqac_diag)]),
    "gqac_equiv_via_name": (c_char_p, [c_int]),
    "gqac_equiv_create": (c_int, [c_void_p, POINTER(gqac_equiv_options), POINTER(c_void_p), POINTER(gqac_diag)]),
    "gqac_equiv_free": (None, [c_void_p]),
    "gqac_equiv_run": (c_int, [c_void_p, POINTER(gqac_diag)]),
    "gqac_equiv_get_report": (POINTER(gqac_equiv_report), [c_void_p]),
    "gqac_random_ids": (None, [c_uint64, c_int64, c_int64, POINTER(c_int64)]),
    "gqac_sequence_past": (c_int, [c_void_p, POINTER(gqac_kv_pair), POINTER(gqac_tensor), POINTER(gqac_diag)]),
    "gqac_sequence_copy": (c_int, [c_void_p, c_int, POINTER(c_void_p), POINTER(gqac_diag)]),
    "gqac_compare": (gqac_comparison, [POINTER(gqac_tensor), POINTER(gqac_tensor)]),
    "gqac_artefact_verify": (c_int, [c_char_p, POINTER(gqac_diag)]),
    "gqac_digest": (None, [c_void_p, c_size_t, c_void_p]),
    "gqac_model_digest": (c_int, [c_char_p, POINTER(gqac_options), c_void_p, POINTER(gqac_diag)]),
    "gqac_artefact_attachments": (c_int, [c_char_p, POINTER(POINTER(gqac_attachment)), POINTER(c_int), POINTER(gqac_diag)]),
    "gqac_check_output": (c_int, [c_char_p, c_void_p, c_char_p, POINTER(gqac_diag)]),
    "gqac_npy_read": (c_int, [c_char_p, c_int, POINTER(gqac_tensor), POINTER(gqac_diag)]),
    "gqac_npy_write": (c_int, [c_char_p, POINTER(gqac_tensor), POINTER(gqac_diag)]),
    "gqac_pb_read": (c_int, [c_char_p, POINTER(gqac_tensor), c_void_p, c_size_t, POINTER(gqac_diag)]),
    "gqac_tensor_alloc": (c_int, [POINTER(gqac_tensor), POINTER(gqac_diag)]),
    "gqac_tensor_free": (None, [POINTER(gqac_tensor)]),
    "gqac_tensor_get": (c_double, [POINTER(gqac_tensor), c_int64]),
    "gqac_info_open": (c_int, [c_char_p, POINTER(gqac_options), POINTER(POINTER(gqac_info)), POINTER(gqac_diag)]),
    "gqac_info_free": (None, [POINTER(gqac_info)]),
    "gqac_context_observe": (None, [c_void_p, gqac_observer, c_void_p]),
    "gqac_plan_open": (c_int, [c_void_p, c_int64, POINTER(POINTER(gqac_plan)), POINTER(gqac_diag)]),
    "gqac_plan_free": (None, [POINTER(gqac_plan)]),
    "gqac_run": (c_int, [c_void_p, c_int, POINTER(c_char_p), POINTER(gqac_tensor), c_int, POINTER(c_char_p), POINTER(gqac_tensor), POINTER(gqac_diag)]),
    "gqac_run_shapes": (c_int, [c_void_p, c_int, POINTER(c_char_p), POINTER(gqac_tensor), c_int, POINTER(c_char_p), POINTER(gqac_tensor), POINTER(gqac_diag)]),
    "gqac_run_valid_rows": (c_int, [c_void_p, c_int, POINTER(c_char_p), POINTER(gqac_tensor), c_int, POINTER(c_char_p), c_int64, POINTER(c_int64), POINTER(gqac_diag)]),
    "gqac_context_bind_output": (c_int, [c_void_p, c_char_p, c_void_p, c_size_t, POINTER(gqac_diag)]),
    "gqac_context_read_output": (c_int, [c_void_p, c_int, POINTER(gqac_tensor), POINTER(gqac_diag)]),
    "gqac_context_reserve": (c_int, [c_void_p, c_char_p, c_int, POINTER(c_int64), POINTER(gqac_diag)]),
    "gqac_context_upload": (c_int, [c_void_p, c_char_p, POINTER(gqac_tensor), POINTER(gqac_diag)]),
    "gqac_context_parameter": (c_int, [c_void_p, c_char_p, POINTER(gqac_tensor), POINTER(gqac_diag)]),
    "gqac_stop_requested": (c_bool, [c_void_p]),
    "gqac_version": (c_char_p, []),
    "gqac_scheduler_create": (c_int, [c_void_p, POINTER(gqac_scheduler_options), POINTER(c_void_p), POINTER(gqac_diag)]),
    "gqac_scheduler_no_drafts": (c_char_p, [c_void_p]),
    "gqac_scheduler_free": (None, [c_void_p]),
    "gqac_scheduler_submit": (c_int, [c_void_p, POINTER(gqac_request), POINTER(c_int64), POINTER(gqac_diag)]),
    "gqac_scheduler_cancel": (c_bool, [c_void_p, c_int64]),
    "gqac_scheduler_step": (c_int, [c_void_p, POINTER(c_int64), POINTER(gqac_diag)]),
    "gqac_scheduler_get_statistics": (c_int, [c_void_p, POINTER(gqac_scheduler_statistics), POINTER(gqac_diag)]),
    "gqac_seq2seq_is_folder": (c_bool, [c_char_p]),
    "gqac_seq2seq_open": (c_int, [c_char_p, POINTER(gqac_options), POINTER(c_void_p), POINTER(gqac_diag)]),
    "gqac_seq2seq_free": (None, [c_void_p]),
    "gqac_seq2seq_get_settings": (POINTER(gqac_seq2seq_settings), [c_void_p]),
    "gqac_seq2seq_files": (c_int, [c_void_p, POINTER(POINTER(gqac_seq2seq_file))]),
    "gqac_seq2seq_context_create": (c_int, [c_void_p, c_void_p, POINTER(c_void_p), POINTER(gqac_diag)]),
    "gqac_seq2seq_context_free": (None, [c_void_p]),
    "gqac_seq2seq_context_set_monitor": (c_int, [c_void_p, POINTER(gqac_monitor), POINTER(gqac_diag)]),
    "gqac_seq2seq_generate": (c_int, [c_void_p, c_void_p, POINTER(gqac_seq2seq_source), POINTER(gqac_generate_request), POINTER(POINTER(gqac_generation)), POINTER(gqac_diag)]),
    "gqac_session_no_drafts": (c_char_p, [c_void_p]),
    "gqac_check_draft": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p, POINTER(gqac_diag)]),
    "gqac_remote_open": (c_int, [POINTER(gqac_remote_options), POINTER(c_void_p), POINTER(gqac_diag)]),
    "gqac_remote_free": (None, [c_void_p]),
    "gqac_remote_functions": (POINTER(gqac_store_remote), [c_void_p]),
}
