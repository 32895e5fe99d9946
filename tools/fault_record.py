"""The record of planted faults, as tools/trust keeps it."""


def record_of(faults, done, kept, command, seconds):
    """Of these faults, and what became of each; of so many of them an earlier run saw it."""
    results = {fault.name: done[fault.name] for fault in faults}
    outcomes = [result["outcome"] for result in results.values()]
    folders = {}
    for fault in faults:
        row = folders.setdefault(fault.file.split("/")[0], {"planted": 0, "caught": 0})
        row["planted"] += 1
        row["caught"] += results[fault.name]["outcome"] == "caught"
    counts = {"faults planted": len(faults), "caught": outcomes.count("caught"), "survived": outcomes.count("survived"),
              "that did not build": outcomes.count("does not build"),
              "tests seen to fail": len({test for result in results.values() for test in result.get("by", {})})}
    if kept:
        counts["seen by an earlier run"] = kept
    return {"title": "Planted faults", "what": "Small faults in the sources, one at a time: build, and run the tests that should notice. "
            "Every one must be caught.", "command": command, "seconds": round(seconds, 1), "counts": counts,
            "tables": {"in": dict(sorted(folders.items()))}, "failures": len(faults) - counts["caught"]}
