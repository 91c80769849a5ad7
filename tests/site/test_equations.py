"""Every display equation of the site, evaluated as it stands on its page; `formulas` reads the
LaTeX and says what letters mean. Below it what LaTeX cannot say: what float32 does in truth.
"""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from formulas.bindings import FAMILIES, check, of_row
from formulas.bindings import log_sum as lse
from formulas.bindings import soft as softmax
from formulas.reader import FormulaError, read
from site_build import ROOT, pages
from softmax_site import equations

WRITTEN = [
    pytest.param(found["label"], found["latex"], id=f"{found['label']}-{page.stem}")
    for page in pages()
    for found in equations.EQUATION.finditer(page.read_text("utf8"))
]
"""Those that the guide to writing shows, too."""


@pytest.mark.parametrize("label, latex", WRITTEN)
def test_equation(label, latex):
    """Both sides of each relation agree, shapes fit, and bounds are near what they bound."""
    check(label, equations.filled(latex, ROOT))


WRONG = r"""
softmax-vjp: \mathit{dx} = y \odot \bigl( \mathit{dy} + \langle y, \mathit{dy} \rangle \bigr)
softmax-vjp: \mathit{dx} = y\, (\mathit{dy} - \langle y, \mathit{dy} \rangle)
online-d: d_i = d_{i-1}\, e^{m_i - m_{i-1}} + e^{x_i - m_i}
softmax-jacobian-delta: J_{ij} = y_i\, (\delta_{ij} - y_i)
softmax-jacobian-matrix: \underset{N \times 1}{J} = \operatorname{diag}(y) - y\, y^{\mathsf T}
softmax-safe: y_i = \frac{e^{x_j - m}}{d}
lse-bounds: \operatorname{lse}(x) \le 2 + \max_j x_j + \log N
jacobian-symmetric: J = J^{\mathsf T} \qquad d = d
softmax-sums-to-one: \sum_{i} y_1 = 1
worked-output: Y \approx \begin{pmatrix} 0.09 & 0.2448 & 0.7 \\ 0 & 0.1 & 0.9 \end{pmatrix}
no-such-label: x = x
unreadable: x \longrightarrow y
unreadable: x_i
unreadable: x = \foo
unreadable: x = y \text{ or } z = x
"""


@pytest.mark.parametrize("line", WRONG.strip().split("\n"))
def test_an_equation_that_is_wrong_or_can_be_read_in_two_ways_fails(line):
    label, _, latex = line.partition(": ")
    with pytest.raises(FormulaError):
        check(label, latex) if label != "unreadable" else read(latex)


def test_each_label_is_bound_once_and_stands_on_a_page():
    labels = [label for _, labels in FAMILIES for label in labels.split()]
    assert sorted(labels) == sorted(equations.load(ROOT).equations)


def test_letters_mean_what_they_mean_in_pytorch():
    for env in of_row():
        x = torch.tensor(env["x"], requires_grad=True)
        y = torch.softmax(x, 0)
        (dx,) = torch.autograd.grad(y, x, torch.tensor(env["dy"]))
        assert np.allclose(softmax(env["x"]), y.detach()) and np.allclose(env["dx"], dx)
        assert np.allclose(lse(env["x"]), torch.logsumexp(x, 0).detach())
        loss = cross_entropy(x, torch.tensor(env["t"] - 1), label_smoothing=env["psi"]).item()
        assert np.isclose(loss, env["_cross_entropy"](env["_smoothed"]))


def test_the_transpose_is_meant_where_a_jacobian_is_not_symmetric():
    """That of log-softmax: `vjp-transpose`."""
    for env in of_row():
        x, dz = torch.tensor(env["x"], requires_grad=True), env["w"]
        jacobian = env.slope(lambda moved: moved["z"], "x")
        (torch.log_softmax(x, 0) @ torch.tensor(dz)).backward()
        assert np.allclose(x.grad, jacobian.T @ dz)
        assert env["N"] < 3 or np.allclose(dz, dz[0]) or not np.allclose(x.grad, jacobian @ dz)


@pytest.mark.parametrize(
    "dtype, smallest", [(torch.float16, 2.0**-24), (torch.bfloat16, 2.0**-133)]
)
def test_rounding_once(dtype, smallest):
    """The error stays within the bound, and comes within a factor of two of it."""
    random, u16, worst = np.random.default_rng(19), torch.finfo(dtype).eps / 2, 0.0
    for spread in (1.0, 4.0, 12.0):
        y = softmax(spread * random.normal(size=512))
        y_hat = torch.from_numpy(y).float()
        eps = float((y_hat.double() / torch.from_numpy(y) - 1).abs().max())
        error = np.abs(y_hat.to(dtype).double().numpy() - y)
        bound = (u16 + eps + u16 * eps) * y + smallest / 2
        assert (error <= bound).all()
        worst = max(worst, (error / bound).max())
        if dtype == torch.float16 and spread == 12.0:  # where η matters
            assert (error / bound)[y < torch.finfo(dtype).tiny].max() > 0.5
    assert worst > 0.5
