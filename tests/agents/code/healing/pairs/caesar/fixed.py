def caesar(text: str, shift: int) -> str:
    moved = ""
    for character in text:
        if character.isascii() and character.isalpha():
            first = ord("A" if character.isupper() else "a")
            moved += chr((ord(character) - first + shift) % 26 + first)
        else:
            moved += character
    return moved
