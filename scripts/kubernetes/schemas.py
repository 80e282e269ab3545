"""JSON schemas of all kinds of an API server, from its OpenAPI description, for kubeconform."""

import json

REFERENCE = "#/definitions/"
INTEGER_OR_STRING = {"anyOf": [{"type": "integer"}, {"type": "string"}]}
# Types whose description has the form in which the server writes them, and not all that it reads.
READ_FORMS = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": INTEGER_OR_STRING,
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {
        "anyOf": [{"type": "number"}, {"type": "string"}]
    },
}
# The name of a kind's file, for kubeconform's -schema-location. The group of the core kinds is their
# version.
LOCATION = "{{.Group}}_{{.ResourceAPIVersion}}_{{.ResourceKind}}.json"


def strict(schema):
    """A schema that refuses unknown fields where all fields are listed; references lead to the
    file of all definitions."""
    if "$ref" in schema:
        return {"$ref": f"definitions.json{schema['$ref']}"}
    if schema.get("format") == "int-or-string" or schema.get("x-kubernetes-int-or-string"):
        return INTEGER_OR_STRING
    found = {
        key: schema[key]
        for key in ("type", "enum", "required", "pattern", "format")
        if key in schema
    }
    for key in ("items", "additionalProperties"):
        if key in schema:
            value = schema[key]
            found[key] = strict(value) if isinstance(value, dict) else value
    if "properties" in schema:
        found["properties"] = {name: strict(value) for name, value in schema["properties"].items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            found.setdefault("additionalProperties", False)
    return found


def write(description, directory):
    """Writes the schema of each kind of the description (`/openapi/v2`) into the directory;
    returns the value of kubeconform's -schema-location."""
    definitions = {
        name: READ_FORMS.get(name) or strict(schema)
        for name, schema in description["definitions"].items()
    }
    (directory / "definitions.json").write_text(json.dumps({"definitions": definitions}))
    for name, schema in description["definitions"].items():
        for kind in schema.get("x-kubernetes-group-version-kind", []):
            group = kind["group"] or kind["version"]
            file = f"{group}_{kind['version']}_{kind['kind'].lower()}.json"
            reference = {"$ref": f"definitions.json{REFERENCE}{name}"}
            (directory / file).write_text(json.dumps(reference))
    return f"{directory}/{LOCATION}"
