"""A plan for each query. Spark 4.1 plans a frame of a Python source once; later queries would see what was there then.

Rule: what a query reads is resolved when the query is planned, as in Spark's Kafka source, and stays that for as long
as its plan lives: a task that is tried again, or a part of a cache that is computed again, reads the same offsets.

`PythonDataSourceV2`, the object behind a frame, keeps the reader and its partitions after the first query
(`getOrCreateReadInfo`), and later queries ask nothing of a Python source. So a strategy of the planner, which is called
before Spark's own strategies and plans nothing itself, has the partitions planned again, and puts them in the place of
those that are kept. They are replaced and never removed: a query of another thread may be about to read them.

Source: ExperimentalMethods.extraStrategies, QueryExecution.createSparkPlan (`ReturnAnswer` is the root of each query
and subquery), AdaptiveSparkPlanExec.reOptimize, org.apache.spark.sql.execution.datasources.v2.python (Spark 4.1.3).
"""

from typing import Any, Final

STRATEGY: Final = "penstock.PlanEachQuery"
PLAN_ONCE: Final = "org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2"
"""The class that keeps the plan. One without `setReadInfo` keeps none: then each scan has its own."""
SOURCE: Final = """
package penstock;

import java.lang.reflect.Field;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.Set;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.ReturnAnswer;
import org.apache.spark.sql.execution.SparkStrategy;
import org.apache.spark.sql.execution.adaptive.LogicalQueryStage;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;
import scala.collection.immutable.Nil$;

public final class PlanEachQuery extends SparkStrategy {
  private final Field sourceOfScan;
  private final Field nameOfScan;

  public PlanEachQuery() throws ReflectiveOperationException {
    sourceOfScan = PythonScan.class.getDeclaredField("ds");
    nameOfScan = PythonScan.class.getDeclaredField("shortName");
    sourceOfScan.setAccessible(true);
    nameOfScan.setAccessible(true);
  }

  public scala.collection.immutable.Seq apply(LogicalPlan plan) {
    if (plan instanceof ReturnAnswer && !isUnderWay(plan)) {
      Set planned = Collections.newSetFromMap(new IdentityHashMap());
      Iterator leaves = plan.collectLeaves().iterator();
      while (leaves.hasNext()) {
        Object leaf = leaves.next();
        if (leaf instanceof DataSourceV2ScanRelation) {
          planAgain((DataSourceV2ScanRelation) leaf, planned);
        }
      }
    }
    return (scala.collection.immutable.Seq) Nil$.MODULE$;
  }

  /** Whether stages of the query run already, and adaptive execution plans its rest: the query stays at what it saw. */
  private static boolean isUnderWay(LogicalPlan plan) {
    Iterator leaves = plan.collectLeaves().iterator();
    while (leaves.hasNext()) {
      if (leaves.next() instanceof LogicalQueryStage) {
        return true;
      }
    }
    return false;
  }

  /** All scans of one frame in a query share one plan. */
  private void planAgain(DataSourceV2ScanRelation relation, Set planned) {
    if (!(relation.scan() instanceof PythonScan)) {
      return;
    }
    try {
      String name = (String) nameOfScan.get(relation.scan());
      PythonDataSourceV2 source = (PythonDataSourceV2) sourceOfScan.get(relation.scan());
      if ("penstock".equalsIgnoreCase(name) && planned.add(source)) {
        StructType schema = relation.scan().readSchema();
        source.setReadInfo(source.source().createReadInfoInPython(
            source.getOrCreateDataSourceInPython(name, relation.relation().options(), scala.Option.apply(schema)),
            schema, false));
      }
    } catch (IllegalAccessException error) {
      throw new IllegalStateException(error);
    }
  }
}
"""
"""The strategy, in the Java that Janino compiles: the compiler that Spark has for the code that it generates."""


def plan_each_query(jvm: Any, experimental: Any) -> None:  # noqa: ANN401
    """Have a session plan each query by itself; once, however often it is asked.

    `jvm`: py4j's view of the driver's Java; `experimental`: the Java session's `ExperimentalMethods`. Raises
    `Py4JJavaError` where Spark's classes are none that the strategy fits.
    """
    strategies = experimental.extraStrategies()
    known = [strategies.apply(index).getClass().getName() for index in range(strategies.length())]
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    methods = [method.getName() for method in loader.loadClass(PLAN_ONCE).getMethods()]
    if STRATEGY in known or "setReadInfo" not in methods:
        return
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.cook(SOURCE)
    strategy = compiler.getClassLoader().loadClass(STRATEGY).newInstance()
    # Scala's name of the assignment `extraStrategies = ...`.
    getattr(experimental, "extraStrategies_$eq")(strategies.prepended(strategy))
