"""ONNX Runtime as one of the benchmark's engines; the words and lines are those of worker_gqac.c.

Everything is bound in advance: inputs and outputs are buffers with the lifetime of the session, and
past and present of a sequence are one buffer. Intra-op threads are pinned, and the caller has the
first core; spinning is on, as by default. With library=FILE the session runs on gqac, through its
execution provider, and not on ONNX Runtime's kernels. With provider=NAME it runs on that provider
of ONNX Runtime, and past and present are in the memory of its device.
"""

import os
import sys
import time

import numpy as np
import onnxruntime as ort

import worker

OWN = "GqacExecutionProvider"
DEVICES = {"CUDAExecutionProvider": "cuda"}


class Engine(worker.Engine):
    """A session, and a binding for each sequence of the rotation."""

    def __init__(self, a):
        super().__init__(a)
        options = ort.SessionOptions()
        options.intra_op_num_threads = a.threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        cores = sorted(os.sched_getaffinity(0))[:a.threads]
        if a.threads > 1:
            options.add_session_config_entry("session.intra_op_thread_affinities",
                                             ";".join(str(c + 1) for c in cores[1:]))
        providers = ["CPUExecutionProvider"]
        if a.library:
            if not any(device.ep_name == OWN for device in ort.get_ep_devices()):
                ort.register_execution_provider_library("gqac", a.library)
            options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
            providers = [(OWN, {"threads": str(a.threads)})]
        if a.provider:
            if a.provider not in ort.get_available_providers():
                raise ValueError(f"this build of ONNX Runtime has no {a.provider}")
            providers = [a.provider, "CPUExecutionProvider"]  # shapes are computed on the host
        self.memory = DEVICES.get(a.provider, "cpu")
        self.session = ort.InferenceSession(a.model, options, providers=providers)
        os.sched_setaffinity(0, cores[:1])
        self.kept = []  # buffers to which bindings refer
        self.outputs = {o.name: o for o in self.session.get_outputs()}

    def version(self):
        return ort.__version__

    def value(self, array, memory="cpu"):
        value = ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array), memory, 0)
        self.kept.append(value)
        return value

    def open_run(self, inputs):
        binding = self.session.io_binding()
        for name, array in inputs.items():
            binding.bind_ortvalue_input(name, self.value(array))
        # The shapes of the outputs come from one run that allocates them.
        for name in self.outputs:
            binding.bind_output(name)
        self.session.run_with_iobinding(binding)
        for name, value in zip(self.outputs, binding.get_outputs()):
            self.kept.append(value)
            binding.bind_ortvalue_output(name, value)
        self.binding = binding
        self.first = binding.get_outputs()[0]

    def run(self):
        began = time.perf_counter()
        self.session.run_with_iobinding(self.binding)
        self.last = self.first
        return time.perf_counter() - began

    def open_sequences(self, rows):
        a = self.a
        capacity = a.past + a.calls * a.tokens
        self.pairs = [i.name for i in self.session.get_inputs() if "past" in i.name]
        shapes = {i.name: (i.shape, i.type) for i in self.session.get_inputs()}
        self.sequences = []
        for _ in range(a.rotate):
            buffers = {}
            for name in self.pairs:
                shape, kind = shapes[name]
                dtype = np.float16 if "float16" in kind else np.float32
                buffers[name] = np.zeros([a.batch, shape[1], capacity, shape[3]], dtype)
                if rows:
                    buffers[name][:, :, :a.past] = rows[name]
            if a.past and not rows:
                self.prompt(buffers)
            values = {name: self.value(buffer, self.memory) for name, buffer in buffers.items()}
            self.sequences.append([self.bind(values, a.past + c * a.tokens, a.tokens, a.batch)
                                   for c in range(a.calls)])
        self.sample = 0

    def prompt(self, buffers):
        """The past of one sequence, copied to the memory of each."""
        first = {name: ort.OrtValue.ortvalue_from_numpy(buffer[:1].copy(), self.memory, 0)
                 for name, buffer in buffers.items()}
        self.session.run_with_iobinding(self.bind(first, 0, self.a.past, 1))
        for name, buffer in buffers.items():
            buffer[:] = first[name].numpy()

    def bind(self, buffers, past, tokens, batch):
        binding = self.session.io_binding()
        ids = np.stack([self.ids(past, tokens, i) for i in range(batch)])
        binding.bind_ortvalue_input("input_ids", self.value(ids))
        mask = np.ones([batch, past + tokens], np.int64)
        binding.bind_ortvalue_input("attention_mask", self.value(mask))
        for name, value in buffers.items():
            binding.bind_ortvalue_input(name, value)
            present = name.replace("past_key_values", "present")
            binding.bind_ortvalue_output(present, value)
        shape = self.outputs["logits"].shape
        rows = shape[1] if isinstance(shape[1], int) else tokens
        dtype = np.float16 if "float16" in self.outputs["logits"].type else np.float32
        logits = self.value(np.zeros([batch, rows, shape[2]], dtype))
        binding.bind_ortvalue_output("logits", logits)
        self.kept.append(binding)
        binding.logits = logits
        return binding

    def run_sequence(self):
        bindings = self.sequences[self.sample % len(self.sequences)]
        self.sample += 1
        began = time.perf_counter()
        for binding in bindings:
            self.session.run_with_iobinding(binding)
        taken = time.perf_counter() - began
        self.last = bindings[-1].logits
        return taken / len(bindings)

    def output(self):
        return self.last.numpy()


if __name__ == "__main__":
    sys.exit(worker.main(Engine))
