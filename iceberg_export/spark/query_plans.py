"""Makes a plan for each query. Spark 4.1 plans a frame of a Python source once, and later queries use the old plan.

The offsets of a query are resolved when it is planned, as in Spark's Kafka source. They do not change while its plan is
in use: a retried task, or a recomputed part of a cache, reads the same offsets.

`PythonDataSourceV2`, the object behind a frame, stores the reader and its partitions after the first query
(`getOrCreateReadInfo`). Later queries do not call the Python source. So a planner strategy, which runs before Spark's
own and plans nothing itself, has the partitions planned again, and replaces the stored ones. They are replaced and
never removed, because a query of another thread may be about to read them.

Source: ExperimentalMethods.extraStrategies, QueryExecution.createSparkPlan (`ReturnAnswer` is the root of each query
and subquery), AdaptiveSparkPlanExec.reOptimize, org.apache.spark.sql.execution.datasources.v2.python (Spark 4.1.3).
"""

from typing import Any, Final

STRATEGY: Final = "penstock.PlanEachQuery"
PLAN_ONCE: Final = "org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2"
"""The class that stores the plan. A version without `setReadInfo` stores none, so each scan has its own plan."""
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

  /** True where stages of the query run already: adaptive execution plans the others, for the same offsets. */
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
"""The strategy in Java, for Janino, the compiler that Spark has for its generated code."""


def plan_each_query(jvm: Any, experimental: Any) -> None:  # noqa: ANN401
    """Add the strategy to a session, unless it has it.

    `jvm`: py4j's view of the driver's Java; `experimental`: the Java session's `ExperimentalMethods`. Raises
    `Py4JJavaError` where Spark's classes are not those of the strategy.
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
