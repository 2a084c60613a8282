//! `hindsight completions`.

use std::io::Write;

use api::ExitCode;
use clap::ValueEnum;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell.
    shell: Shell,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Shell {
    Bash,
    Fish,
    Zsh,
}

/// Bash breaks words at `@`, `:` and `=` and replaces what stands behind the last of them: so words
/// are put together again, and what stands before is taken off the candidates. An `@` is replaced
/// with what stands behind it.
const BASH: &str = r#"_hindsight() {
    local rest=${COMP_LINE:0:COMP_POINT} words=() word i kept
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ $i -eq 0 || $rest == [[:space:]]* ]]; then
            rest=${rest#"${rest%%[![:space:]]*}"}
            words+=("")
        fi
        if [[ $i -eq COMP_CWORD ]]; then word=$rest; fi
        words[${#words[@]} - 1]+=$word
        rest=${rest#"$word"}
    done
    word=${words[${#words[@]} - 1]}
    kept=${word%"${word##*["$COMP_WORDBREAKS"]}"}
    kept=${kept%@}
    COMPREPLY=()
    while IFS= read -r word; do
        COMPREPLY+=("${word#"$kept"}")
    done < <("${words[0]}" complete -- "${words[@]:1}" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[@:=] ]]; then compopt -o nospace; fi
}
complete -o bashdefault -o default -F _hindsight hindsight hindsight-lab
"#;

const FISH: &str = r"function __hindsight_complete
    set -l words (commandline --tokenize --cut-at-cursor --current-process)
    set -l current (commandline --current-token --cut-at-cursor)
    set -l found (command $words[1] complete -- $words[2..-1] $current 2>/dev/null)
    if set -q found[1]
        printf '%s\n' $found
    else
        __fish_complete_path $current
    end
end
complete --command hindsight --command hindsight-lab --no-files --arguments '(__hindsight_complete)'
";

const ZSH: &str = r#"#compdef hindsight hindsight-lab
_hindsight() {
    local -a found open
    found=("${(@f)$("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    found=(${found:#})
    if (( ! $#found )); then
        _files
        return
    fi
    open=(${(M)found:#*[@:=]})
    compadd -S '' -- $open
    compadd -- ${found:#*[@:=]}
}
if [ "$funcstack[1]" = _hindsight ]; then
    _hindsight "$@"
else
    compdef _hindsight hindsight hindsight-lab
fi
"#;

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let script = match args.shell {
        Shell::Bash => BASH,
        Shell::Fish => FISH,
        Shell::Zsh => ZSH,
    };
    std::io::stdout().write_all(script.as_bytes())?;
    Ok(ExitCode::Done)
}
