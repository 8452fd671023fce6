def split_csv(line: str) -> list[str]:
    fields: list[str] = []
    current, quoted = "", False
    for character in line:
        if character == '"':
            quoted = not quoted
        elif character == "," and not quoted:
            fields.append(current)
            current = ""
        else:
            current += character
    fields.append(current)
    return fields
