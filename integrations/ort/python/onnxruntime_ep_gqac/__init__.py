"""The execution provider of gqac for ONNX Runtime: the path of its library, and its name.

    onnxruntime.register_execution_provider_library("gqac", get_library_path())
    session = onnxruntime.InferenceSession("model.onnx", providers=[get_ep_name()])
"""

import os

__all__ = ["get_ep_name", "get_library_path"]


def get_library_path() -> str:
    """The path of libgqac_ort.so, for onnxruntime.register_execution_provider_library."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "libgqac_ort.so")


def get_ep_name() -> str:
    """The name of the provider, for the list of providers of a session."""
    return "GqacExecutionProvider"
