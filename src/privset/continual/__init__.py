"""Private continual learning: parties with disjoint classes publish one after the other, and a classifier learns all.

parties = continual.divide(continual.class_order(dataset), 5)
stages = continual.prepare(dataset, parties, method=method, budget=budget, out=Path("course"), exam=Exam())
course = continual.run(dataset, stages, exam=Exam())
print(course.guarantee["statement"], course.scores[course.best][-1].mean)
"""

from privset.continual.division import PUBLISHED, class_order, divide
from privset.continual.exam import Exam, examine
from privset.continual.finding import find
from privset.continual.guarantee import guarantee
from privset.continual.notes import check_note
from privset.continual.protocol import Course, prepare, run
from privset.continual.received import Received
from privset.continual.receiving import receive
from privset.continual.scores import Score, score
from privset.continual.stage import Stage
from privset.evaluation.figure import Curve, Figure, draw

__all__ = [
    "PUBLISHED",
    "Course",
    "Curve",
    "Exam",
    "Figure",
    "Received",
    "Score",
    "Stage",
    "check_note",
    "class_order",
    "divide",
    "draw",
    "examine",
    "find",
    "guarantee",
    "prepare",
    "receive",
    "run",
    "score",
]
