"""Models from text, run by gqac and by ONNX Runtime."""

import numpy as np
import onnx

from harness import Case, gqac

try:
    import onnxruntime as ort
except ImportError:
    ort = None


class Texts(Case):
    """Runs models from text."""

    def save(self, text):
        """The .onnx file of a model."""
        made = onnx.parser.parse_model(text)
        onnx.checker.check_model(made)
        onnx.save(made, self.dir / "model.onnx")
        return self.dir / "model.onnx"

    def run_model(self, path, feeds, *flags, code=0, words=()):
        """Outputs by name."""
        inputs = []
        for name, value in feeds.items():
            np.save(self.dir / f"{name}.npy", value)
            inputs += ["--input", f"{name}={self.dir / name}.npy"]
        out = self.dir / "out"
        self.check(gqac("run", path, *inputs, "-o", out, *flags), code, *words)
        return {p.stem: np.load(p) for p in out.glob("*.npy")} if code == 0 else None

    def same(self, text, feeds):
        """The same as ONNX Runtime, on both targets, and for the text parsed again."""
        path = self.save(text)
        session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        wanted = dict(zip([o.name for o in session.get_outputs()], session.run(
            None, {n: np.asarray(v) for n, v in feeds.items()})))
        self.good("compile", path, "--emit", "text", "--stop-after", "import", "-o",
                  self.dir / "model.gq")
        for made in (path, self.dir / "model.gq"):
            for target in ("cpu", "ref"):
                got = self.run_model(made, feeds, "--target", target)
                for name, value in wanted.items():
                    np.testing.assert_array_equal(got[name], value, f"{name} {feeds}")
