# bash completion for topksoftmax                            -*- shell-script -*-
# SPDX-License-Identifier: Apache-2.0
#
# Commands, options and names of backends are asked of the program itself.

_topksoftmax() {
  local program=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
  local command=${COMP_WORDS[1]} words="" part
  COMPREPLY=()
  case $before in
    --backend | --backends | --set)
      words=$("$program" list --names 2>/dev/null)
      if [[ $before == --set ]]; then
        compopt -o nospace 2>/dev/null
        words=$(printf '%s.\n' $words)
      fi
      # Of names separated by commas the last is completed.
      part=${word%"${word##*,}"}
      mapfile -t COMPREPLY < <(compgen -P "$part" -W "$words" -- "${word##*,}")
      return
      ;;
  esac
  if ((COMP_CWORD == 1)); then
    words="--help --version $("$program" --help 2>/dev/null | sed -n '/^Subcommands:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p')"
  elif [[ $word == -* ]]; then
    words=$("$program" "$command" --help 2>/dev/null | grep -oE -- '--[a-z][a-z0-9-]*' | sort -u)
  else
    compopt -o default 2>/dev/null # names of files
    return
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}

complete -F _topksoftmax topksoftmax topksoftmax-bench
