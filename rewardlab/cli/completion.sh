# Completes commands, options, names of configs, keys and their choices; else names of files.
_rewardlab() {
    local current="${COMP_WORDS[COMP_CWORD]}" command="" config="" key="" prefix="" options="" values="" word i=1
    COMPREPLY=()
    while [ "$i" -lt "$COMP_CWORD" ]; do
        word="${COMP_WORDS[$i]}"
        case "|@COMMANDS@|" in
            *"|${command:+$command }$word|"*) command="${command:+$command }$word" ;;
        esac
        case " $_rewardlab_configs " in *" $word "*) config="$word" ;; esac
        case "$word" in *.yaml) config="$word" ;; esac
        i=$((i + 1))
    done
    # Bash makes three words of key=value, zsh one.
    case "$current" in
        ?*=*) key="${current%%=*}" prefix="${current%%=*}=" current="${current#*=}" ;;
        =) key="${COMP_WORDS[COMP_CWORD - 1]}" current="" ;;
        *) if [ "$COMP_CWORD" -gt 1 ] && [ "${COMP_WORDS[COMP_CWORD - 1]}" = "=" ]; then
            key="${COMP_WORDS[COMP_CWORD - 2]}"
        fi ;;
    esac
    if [ -n "$key" ]; then
        case "$key" in
@KEY_CHOICES@
        esac
        _rewardlab_reply "$prefix" " " "$values" "$current"
        return
    fi
    case "$command ${COMP_WORDS[COMP_CWORD - 1]}" in
@OPTION_CHOICES@
    esac
    if [ -n "$values" ]; then
        _rewardlab_reply "" " " "$values" "$current"
        return
    fi
    case "$command" in
@OPTIONS@
    esac
    case "$current" in
        -*) _rewardlab_reply "" " " "$options" "$current" ;;
        *) _rewardlab_reply "" " " "$values" "$current"
            case "$command" in
                @TAKE_KEYS@)
                    [ -n "$config" ] || _rewardlab_reply "" " " "$_rewardlab_configs" "$current"
                    _rewardlab_reply "" "=" "$_rewardlab_keys" "$current" ;;
            esac ;;
    esac
}

# Add those of the words $3 that begin with $4, with $1 before them and $2 behind them.
_rewardlab_reply() {
    local word
    for word in $(compgen -W "$3" -- "$4"); do
        COMPREPLY+=("$1$word$2")
    done
}

_rewardlab_configs="@CONFIGS@"
_rewardlab_keys="@KEYS@"
complete -o nospace -o bashdefault -o default -F _rewardlab rewardlab
