"""python -m derate doctor: says what the package finds here."""
import sys

_USAGE = ("usage: python -m derate doctor\n"
          "  Says who measures windows here, and which GPUs there are.")


def main(arguments):
    if arguments == ["doctor"]:
        from derate.doctor import doctor
        return doctor()
    asks = arguments in ([], ["--help"], ["-h"])
    print(_USAGE, file=sys.stdout if asks else sys.stderr)
    return 0 if asks else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
