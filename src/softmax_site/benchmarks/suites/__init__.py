"""What the page of each suite shows."""

from __future__ import annotations

from collections.abc import Callable

from softmax_site.benchmarks.page import Rendered
from softmax_site.benchmarks.suites.accuracy import accuracy_page
from softmax_site.benchmarks.suites.articles import article_page, batch_page
from softmax_site.benchmarks.suites.host import compiled_page, compiles_page, host_time_page
from softmax_site.benchmarks.suites.ladder import ladder_page
from softmax_site.benchmarks.suites.loss_head import loss_head_page
from softmax_site.benchmarks.suites.random import longest_page, random_page
from softmax_site.benchmarks.suites.speed import few_rows_page, log_softmax_page, speed_page
from softmax_site.benchmarks.suites.strides import strided_page

PAGES: dict[str, Callable[[dict], Rendered]] = {
    "forward": lambda data: speed_page(data, "forward"),
    "backward": lambda data: speed_page(data, "backward"),
    "few_rows": few_rows_page,
    "host_time": host_time_page,
    "compiles": compiles_page,
    "accuracy": accuracy_page,
    "ladder": ladder_page,
    "strided": strided_page,
    "log_softmax": log_softmax_page,
    "article": article_page,
    "batch": batch_page,
    "compiled": compiled_page,
    "random": random_page,
    "longest": longest_page,
    "loss_head": loss_head_page,
}
