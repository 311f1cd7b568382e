"""Schemas of Kubernetes' objects are strict, complete by themselves, and accept what Kubernetes accepts."""

from typing import Any

import jsonschema
import pytest

from tools.kubernetes.kubeconform import schemas_of

GROUP = "x-kubernetes-group-version-kind"
API: dict[str, dict[str, Any]] = {
    "v1.Deployment": {
        GROUP: [{"group": "apps", "version": "v1", "kind": "Deployment"}],
        "type": "object",
        "description": "of many words",
        "properties": {
            "spec": {"$ref": "#/definitions/v1.Spec"},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    },
    "v1.Spec": {
        "type": "object",
        "properties": {
            "replicas": {"type": "integer", "default": 0},
            "maxSurge": {"$ref": "#/definitions/io.k8s.apimachinery.pkg.util.intstr.IntOrString"},
            "volumes": {"type": "array", "items": {"$ref": "#/definitions/v1.Volume"}},
        },
    },
    "v1.Volume": {"type": "object", "properties": {"description": {"type": "string"}}},
    "v1.Other": {"type": "object"},
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": "string", "format": "int-or-string"},
    "v1.Namespace": {GROUP: [{"group": "", "version": "v1", "kind": "Namespace"}], "type": "object"},
    "v1.DeleteOptions": {GROUP: [{"group": "", "version": "v1", "kind": "DeleteOptions"}] * 2, "type": "object"},
    "v1.Role": {
        GROUP: [{"group": "rbac.authorization.k8s.io", "version": "v1", "kind": "Role"}],
        "type": "object",
    },
}


def schema(name: str = "deployment-apps-v1") -> dict[str, Any]:
    return dict(schemas_of(API))[name]


def test_each_kind_of_a_manifest_has_a_schema_by_the_first_part_of_its_group() -> None:
    assert sorted(dict(schemas_of(API))) == ["deployment-apps-v1", "namespace-v1", "role-rbac-v1"]


def test_a_schema_has_what_it_refers_to_and_nothing_else() -> None:
    assert schema()["$ref"] == "#/definitions/v1.Deployment"
    assert sorted(schema()["definitions"]) == [
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        "v1.Deployment",
        "v1.Spec",
        "v1.Volume",
    ]


@pytest.mark.parametrize("surge", [1, "25%"])
def test_an_object_of_known_fields_is_valid(surge: object) -> None:
    spec = {"replicas": 1, "maxSurge": surge, "volumes": [{"description": "a field of that name"}]}
    jsonschema.validate({"spec": spec, "labels": {"any": "label"}}, schema())


@pytest.mark.parametrize(
    "wrong",
    [{"specs": {}}, {"spec": {"replica": 1}}, {"spec": {"replicas": "1"}}, {"spec": {"volumes": [{"name": "a"}]}}],
)
def test_a_field_that_is_unknown_or_of_another_type_is_an_error(wrong: object) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, schema())
