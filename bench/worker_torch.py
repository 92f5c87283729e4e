"""torch as one of the benchmark's engines, only for fp32 matmuls: the words and lines are those of
worker_gqac.c.

The weights of the MatMul nodes are read from the ONNX file, in the order of the nodes, and
multiplied by torch.mm into buffers that are allocated in advance.
"""

import sys
import time

import onnx
import torch
from onnx import numpy_helper

import worker


class Engine(worker.Engine):
    """One chain of products."""

    def __init__(self, a):
        super().__init__(a)
        torch.set_num_threads(a.threads)
        graph = onnx.load(a.model).graph
        if any(node.op_type != "MatMul" for node in graph.node):
            raise ValueError("only graphs of MatMul nodes are run by torch")
        tensors = {t.name: t for t in graph.initializer}
        self.weights = [torch.from_numpy(numpy_helper.to_array(tensors[node.input[1]]).copy())
                        for node in graph.node]

    def version(self):
        return torch.__version__

    def open_run(self, inputs):
        (x,) = inputs.values()
        self.x = torch.from_numpy(x.reshape(-1, x.shape[-1]))
        self.rows = [self.x.new_empty(len(self.x), w.shape[1]) for w in self.weights]

    def run(self):
        began = time.perf_counter()
        with torch.inference_mode():
            x = self.x
            for weight, y in zip(self.weights, self.rows):
                x = torch.mm(x, weight, out=y)
        return time.perf_counter() - began

    def output(self):
        return self.rows[-1].numpy()


if __name__ == "__main__":
    sys.exit(worker.main(Engine))
