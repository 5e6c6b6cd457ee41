#!/bin/sh
# Prints the part of a nats-server's configuration that says who may do what: see README.md beside this file.
# Nothing secret is printed: passwords stay in the environment of the server, which reads them when it starts.
set -eu

usage() {
	cat >&2 <<'END'
Usage: access.sh users    [-p PREFIX] [-t SUBJECT]... TENANT... > access.conf
       access.sh accounts [-p PREFIX] [-t SUBJECT]... TENANT... > access.conf

users     one account: permissions keep tenants apart (a fence)
accounts  an account for each tenant, named like it: nothing but its own subjects exists there (a wall)

-p  prefix of the workers' subjects (agent)
-t  subjects of tools on NATS, such as 'tools.>'; adds a user for the services behind them

Each user NAME has a password in $NATS_NAME_PASSWORD of the server's environment (letters in upper case, - as _), in
clear or as printed by "nats server passwd". Where $NATS_NAME_NKEY is set when this runs, the user has that public nkey
instead. Users are worker, operator and reader, for each tenant TENANT-submit and TENANT-bot, and with -t tools.
END
	exit 2
}

die() {
	printf 'access.sh: %s\n' "$1" >&2
	exit 2
}

upper() { printf '%s' "$1" | LC_ALL=C tr 'a-z-' 'A-Z_'; }

# begin NAME opens the user of this name.
begin() {
	var=NATS_$(upper "$1")
	eval "nkey=\${${var}_NKEY:-}"
	case $nkey in
	'') printf '    {\n      user: "%s", password: $%s_PASSWORD\n' "$1" "$var" ;;
	U*[!A-Z2-7]* | [!U]*) die "\$${var}_NKEY is no public key of a user: it begins with U and has letters and digits" ;;
	*) printf '    {\n      nkey: %s # %s\n' "$nkey" "$1" ;;
	esac
	printf '      permissions: {\n'
}

# list KIND reads subjects, one a line, and prints them as what may be published or subscribed to.
list() {
	printf '        %s: [\n' "$1"
	while read -r subject; do
		[ -z "$subject" ] || printf '          "%s"\n' "$subject"
	done
	printf '        ]\n'
}

end() { printf '      }\n    }\n'; }

# each PATTERN WORD... prints the pattern once for each word, in place of @.
each() {
	pattern=$1
	shift
	for word; do printf '%s\n' "${pattern%%@*}$word${pattern#*@}"; done
}

# The streams, as JetStream's own subjects name them. Buckets and the object store are streams too.
streams() {
	queues="${A}_TASKS ${A}_WAKE"
	buckets="KV_${A}_RUNS KV_${A}_SESSIONS KV_${A}_TOOLS KV_${A}_PACE KV_${A}_FACTS"
	blobs="OBJ_${A}_BLOBS"
	scanned="${A}_EVENTS ${A}_DEAD KV_${A}_RUNS $blobs" # read in batches; of the rest, single keys
	all="$queues ${A}_EVENTS ${A}_DEAD $buckets $blobs"
}

# A worker makes and mends the streams, and can't delete one. Its answers go to reply subjects and nowhere else.
worker() {
	begin worker
	{
		each "$P.@.*" task
		each "$P.@.*.*" reply control dead claimed stream
		each "$P.event.*.*.@" step user
		each "$P.@.*.*.*" wake schedule
		each "$P.@.*" outcome
		# shellcheck disable=SC2086 # lists of words
		{
			printf '$JS.API.INFO\n'
			each '$JS.API.STREAM.INFO.@' $all
			each '$JS.API.STREAM.CREATE.@' $all
			each '$JS.API.STREAM.UPDATE.@' $all
			each '$JS.API.STREAM.MSG.GET.@' $queues $scanned
			each '$JS.API.STREAM.MSG.DELETE.@' "${A}_TASKS" "${A}_DEAD"
			each '$JS.API.STREAM.PURGE.@' "${A}_WAKE" "${A}_EVENTS" "KV_${A}_RUNS" "KV_${A}_SESSIONS" "$blobs"
			each '$JS.API.DIRECT.GET.@' $scanned "${A}_WAKE"
			each '$JS.API.DIRECT.GET.@.>' $buckets "$blobs"
			each '$JS.API.CONSUMER.LIST.@' $queues
			each '$JS.API.CONSUMER.NAMES.@' $queues
			each '$JS.API.CONSUMER.CREATE.@.>' $queues "KV_${A}_PACE" "KV_${A}_FACTS" "$blobs"
			each '$JS.API.CONSUMER.DELETE.@.*' "KV_${A}_PACE" "KV_${A}_FACTS" "$blobs"
			each '$JS.API.CONSUMER.MSG.NEXT.@.*' $queues
			each '$JS.ACK.@.>' $queues
			each '$JS.ACK.*.*.@.>' $queues # the form of servers to come
			each '$JS.FC.@.>' "KV_${A}_PACE" "KV_${A}_FACTS" "$blobs"
			each '$JS.FC.*.*.@.>' "KV_${A}_PACE" "KV_${A}_FACTS" "$blobs"
		}
		each "\$KV.${A}_@.>" RUNS SESSIONS TOOLS PACE FACTS
		each "\$O.${A}_BLOBS.@.>" C M
		printf '_INBOX.>\n'
		[ "$form" = users ] || printf '_R_.>\n' # requests from other accounts
		[ -z "$tools" ] || { each '@' $tools && printf '$SRV.INFO\n'; }
	} | list publish
	{
		printf '%s\n' "_INBOX.worker.>"
		each "$P.@.*.*" api control claimed
		each "$P.event.*.*.@" '*'
		each "$P.@.*" outcome
		each '$SRV.@' PING INFO STATS
		each "\$SRV.@.$P" PING INFO STATS
		each "\$SRV.@.$P.*" PING INFO STATS
	} | list subscribe
	end
}

# An operator speaks for every tenant, looks at streams, and handles dead letters.
operator() {
	begin operator
	{
		printf '%s\n' "$P.api.*.*"
		each "$P.@.*" task
		each "$P.@.*.*" reply control
		each "$P.@.*.*.*" wake
		# shellcheck disable=SC2086 # lists of words
		{
			printf '$JS.API.INFO\n$JS.API.STREAM.NAMES\n$JS.API.STREAM.LIST\n'
			each '$JS.API.STREAM.INFO.@' $all
			each '$JS.API.CONSUMER.LIST.@' $queues
			each '$JS.API.CONSUMER.INFO.@.*' $queues
			each '$JS.API.STREAM.MSG.GET.@' "${A}_EVENTS" "${A}_DEAD" "KV_${A}_RUNS" "KV_${A}_SESSIONS"
			each '$JS.API.DIRECT.GET.@' "${A}_EVENTS" "${A}_DEAD"
			each '$JS.API.DIRECT.GET.@.>' "KV_${A}_RUNS" "KV_${A}_SESSIONS" "$blobs"
			each '$JS.API.STREAM.MSG.DELETE.@' "${A}_DEAD"
			each '$JS.API.STREAM.PURGE.@' "$blobs"
			each '$JS.API.CONSUMER.CREATE.@.>' "$blobs"
			each '$JS.API.CONSUMER.DELETE.@.*' "$blobs"
			each '$JS.FC.@.>' "$blobs"
		}
		printf '$SRV.INFO\n$SRV.PING\n$SRV.STATS\n'
	} | list publish
	{
		printf '%s\n' "_INBOX.operator.>"
		each "$P.event.*.*.@" '*'
		each "$P.@.*.*" stream control
	} | list subscribe
	end
}

# A reader sees everything and changes nothing. It has no direct reads: their answer, a stored payload, goes to any subject
# that the request names.
reader() {
	begin reader
	{
		each "$P.api.@.*" get list events prompt
		# shellcheck disable=SC2086 # lists of words
		{
			each '$JS.API.STREAM.INFO.@' $all
			each '$JS.API.CONSUMER.LIST.@' $queues
		}
	} | list publish
	{
		printf '%s\n' "_INBOX.reader.>"
		each "$P.event.*.*.@" '*'
		each "$P.@.*.*" stream
	} | list subscribe
	end
}

# The services behind tools on NATS answer what they are asked, once.
toolset() {
	begin tools
	printf '        allow_responses: {max: 1, expires: "10m"}\n'
	: | list publish
	{
		each '@' $tools
		each '$SRV.@' PING INFO STATS
		each '$SRV.@.*' PING INFO STATS
		each '$SRV.@.*.*' PING INFO STATS
	} | list subscribe
	end
}

# submitter TENANT may do all that can be done for the tenant: the program submit works with it.
submitter() {
	begin "$1-submit"
	{
		each "$P.api.@.$1" submit reply control get list events prompt schedules facts
		each "$P.@.$1" task
		each "$P.@.$1.*" reply control
	} | list publish
	{
		printf '%s\n' "_INBOX.tenant.$1.submit.>"
		each "$P.@.$1.*.*" event
		each "$P.@.$1.*" stream
	} | list subscribe
	end
}

# bot TENANT submits, answers and cancels, and hears what is meant for a person.
bot() {
	begin "$1-bot"
	{
		each "$P.api.@.$1" submit reply control events
		each "$P.@.$1" task
		each "$P.@.$1.*" reply control
	} | list publish
	{
		printf '%s\n' "_INBOX.tenant.$1.bot.>"
		each "$P.event.$1.*.@" user
	} | list subscribe
	end
}

staff() {
	worker
	operator
	reader
	[ -z "$tools" ] || toolset
}

tenant_users() {
	submitter "$1"
	bot "$1"
}

print_users() {
	printf 'authorization {\n  users: [\n'
	staff
	for tenant; do tenant_users "$tenant"; done
	printf '  ]\n}\n'
}

# export KIND SUBJECT POSITION lets an account import the subject with its own name at that position.
export_subject() { printf '    {%s: "%s", account_token_position: %s}\n' "$@"; }

# import KIND SUBJECT
import_subject() { printf '    {%s: {account: "%s", subject: "%s"}}\n' "$1" "$A" "$2"; }

print_accounts() {
	printf 'accounts {\n  "%s": {\n  jetstream: enabled\n  users: [\n' "$A"
	staff
	printf '  ]\n  exports: [\n'
	export_subject service "$P.task.*" 3
	export_subject service "$P.reply.*.*" 3
	export_subject service "$P.control.*.*" 3
	export_subject service "$P.api.*.*" 4
	export_subject stream "$P.event.*.*.*" 3
	export_subject stream "$P.stream.*.*" 3
	printf '  ]\n  }\n'
	for tenant; do
		printf '  "%s": {\n  users: [\n' "$tenant"
		tenant_users "$tenant"
		printf '  ]\n  imports: [\n'
		import_subject service "$P.task.$tenant"
		import_subject service "$P.reply.$tenant.*"
		import_subject service "$P.control.$tenant.*"
		import_subject service "$P.api.*.$tenant"
		import_subject stream "$P.event.$tenant.*.*"
		import_subject stream "$P.stream.$tenant.*"
		printf '  ]\n  }\n'
	done
	printf '}\n'
}

# check TENANT... refuses names that are none, and those that would share a variable or an account.
check() {
	taken=' '
	for tenant; do
		case $tenant in
		'' | _* | *[!A-Za-z0-9_-]*) die "\"$tenant\" is no tenant: use 1 to 64 letters, digits, _ or -, not beginning with _" ;;
		esac
		[ "${#tenant}" -le 64 ] || die "\"$tenant\" is no tenant: it has more than 64 characters"
		[ "$form" = users ] || [ "$tenant" != "$A" ] || die "\"$tenant\" is the name of the workers' account; give the tenant another, or -p another prefix"
		name=$(upper "$tenant")
		case $taken in
		*" $name "*) die "tenants that differ only in case, or in - and _, would have one password: \"$tenant\"" ;;
		esac
		taken="$taken$name "
	done
}

[ $# -gt 0 ] || usage
form=$1
shift
P=agent
tools=
while getopts p:t: option; do
	case $option in
	p) P=$OPTARG ;;
	t) tools="$tools $OPTARG" ;;
	*) usage ;;
	esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || usage
case $P in
[!a-z]* | *[!a-z0-9-]* | '') die "-p $P is no prefix: use a-z, 0-9 and -, beginning with a letter" ;;
esac
case $tools in
*[!A-Za-z0-9._\>\*\ -]*) die "-t takes a subject such as 'tools.>', not$tools" ;;
esac
set -f # patterns of subjects are no file names
A=$(upper "$P")
streams
check "$@"
case $form in
users | accounts) config=$("print_$form" "$@") ;; # all or nothing
*) usage ;;
esac
printf '%s\n' "$config"
