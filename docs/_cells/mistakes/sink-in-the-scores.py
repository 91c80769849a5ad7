"""An attention sink gives good results, until the scores are scaled

A sink is one more logit beside the scaled scores, so do not scale or cap it: start the state (m, d) at (sink, 1). Related: ROCm/rocm-libraries#12229.
"""
from math import exp

scores, scale, sink = [8.0, 4.0], 0.5, 3.0
logits = [scale * s for s in scores + [sink]]  # wrong
logits = [scale * s for s in scores] + [sink]  # right
m = max(logits)
d = sum(exp(z - m) for z in logits)
y = [exp(scale * s - m) / d for s in scores]
expect(y, [exp(z) / (exp(4.0) + exp(2.0) + exp(sink)) for z in (4.0, 2.0)])
