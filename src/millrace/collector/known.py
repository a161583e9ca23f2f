"""Addresses on mainnet of contracts that no other contract lists (AshSwap as of March 2024, JEX of 2024)."""

XEXCHANGE_ROUTER = "erd1qqqqqqqqqqqqqpgqq66xk9gfr4esuhem3jru86wg5hvp33a62jps2fy57p"
ONEDEX_ROUTER = "erd1qqqqqqqqqqqqqpgqqz6vp9y50ep867vnr296mqf3dduh6guvmvlsu3sujc"

ASHSWAP_STABLE_POOLS = (
    "erd1qqqqqqqqqqqqqpgqs8p2v9wr8j48vqrmudcj94wu47kqra3r4fvshfyd9c",
    "erd1qqqqqqqqqqqqqpgqaf8fzwmas77xxr7qwnxd6j3qsctv55e74fvsmvq675",
    "erd1qqqqqqqqqqqqqpgqhvj3vgwhzg26ghaseae6ehleq0r73xd24fvs358shm",
    "erd1qqqqqqqqqqqqqpgqlc8ng44k7q3s7l62cz248nkmhltm8cg64fvsfq2xht",
    "erd1qqqqqqqqqqqqqpgqa60cy30kdzzd8mygg20zhe4ppfhrp0tv4fvs9vd4hp",
    "erd1qqqqqqqqqqqqqpgqcaaahzjqgzhcpqjnlgcn0cx03pr9wg754fvshd6qhv",
    "erd1qqqqqqqqqqqqqpgqlsgfr6xteusallzcspt3ehp8cewlp3s04fvsjm87cw",
    "erd1qqqqqqqqqqqqqpgqs6h95lm3msd0juwc6mkq8u6mpp5fnpvg4fvsq533he",
    "erd1qqqqqqqqqqqqqpgqq4x0g87cg6834h0f7eq4zex473n46ett4fvsg6kvu5",
    "erd1qqqqqqqqqqqqqpgq69ygvajjlpem5yh7v4qc98au8q5ner0l4fvshc4k5x",
    "erd1qqqqqqqqqqqqqpgq4hmvs47rnj6n663mteyxyxpw47h2jwsj4fvs74qdvj",
    "erd1qqqqqqqqqqqqqpgq3ed8p278dm5rlt94kflvgsskkp0ap3jj4fvs3lekwu",
    "erd1qqqqqqqqqqqqqpgqp45m86f6xkpd4rr8qgzhdlmwjqeseajm4fvsguk40h",
    "erd1qqqqqqqqqqqqqpgqfl4h9hce5lqqnsc8fajavskcpkteqcs24fvs4s3x3n",
    "erd1qqqqqqqqqqqqqpgqm08htvhn2dx5hg58euufadatnjkzrdgk4fvsagvpq0",
)

ASHSWAP_CRYPTO_POOLS = (
    "erd1qqqqqqqqqqqqqpgq5l05l0ts4lphdktx33apl0ss9rzf4r244fvsva6j53",
    "erd1qqqqqqqqqqqqqpgqn7969pvzaatp8p9yu6u5h2ce2gyw0x9j4fvsplvthl",
    "erd1qqqqqqqqqqqqqpgqpa9yh80fm9zad85phkuhr4cm323my5k94fvsxf5akw",
    "erd1qqqqqqqqqqqqqpgqhcuaaz7tfndte7w62p2m22xdr605uuye4fvshqzufd",
    "erd1qqqqqqqqqqqqqpgqguf2y57kze3lm5w0h02ax38sfqp95sn64fvsq5qwx9",
    "erd1qqqqqqqqqqqqqpgqt4m0uaamjegpggvzxc8hh22z2r8fgf6v4fvstvetgx",
    "erd1qqqqqqqqqqqqqpgqf48ydzn8shr8mnmrvydq2fn9v2afzd3c4fvsk4wglm",
    "erd1qqqqqqqqqqqqqpgqkvfry6tyaagy84pd897krlqc82jhtlpw4fvs7nc60d",
    "erd1qqqqqqqqqqqqqpgqpckcx4mns62qgcpgage7zp95fphvfmf84fvsez6cjz",
)

JEX_POOLS = (
    "erd1qqqqqqqqqqqqqpgq27utwjgzs3em4jmgrqfgs99kg8dz5w9z6avsqajwnj",
    "erd1qqqqqqqqqqqqqpgqkckf9dl6v0v9zecel7dtsvrsr4qr4hy36avsm0hx8t",
    "erd1qqqqqqqqqqqqqpgqrrffy54xxsac3602s9cwqjayz3lsta3w6avs5uq8s8",
    "erd1qqqqqqqqqqqqqpgq8tmcra2ucpewd03yhwx00fch6gh6xv886avs9knwg2",
    "erd1qqqqqqqqqqqqqpgqefgeflu7x350tae0fac2r5aesua7xmgh6avs57c795",
    "erd1qqqqqqqqqqqqqpgqpa3pdmemt5l2ex80g7pksr2ettt955d66avsz76hyt",
    "erd1qqqqqqqqqqqqqpgq9xrlefh7w7346fdv6ggusufawe5aqg446avsl6xfqd",
    "erd1qqqqqqqqqqqqqpgqssrazqtvzeku9570tpc0x5qr3vdzgdar6avsf4n3j5",
    "erd1qqqqqqqqqqqqqpgq5c3q0p6lw2lltlpqnlv8gelmlk8wt7kk6avsagmnss",
    "erd1qqqqqqqqqqqqqpgqru6tkedsjjszrkkanctgq9m6rm2ple436avs0qj07m",
    "erd1qqqqqqqqqqqqqpgquenuwz852khuxcau49md27wk2qp03v4s6avsdvmxkc",
    "erd1qqqqqqqqqqqqqpgq5nmzpdkpr6c5q894f553n49t0uc67vc96avsxgjl3v",
    "erd1qqqqqqqqqqqqqpgqhrm4x0f20q2ftdyzpkfsftpchme5ute06avs3h2gk7",
    "erd1qqqqqqqqqqqqqpgqzjdqgxdacc57ltx9wclytj8s5reew2kc6avs9akxe3",
    "erd1qqqqqqqqqqqqqpgqk0pgrzllfhzm5qydc7v8rte59sr8atuj6avsxtgx5g",
    "erd1qqqqqqqqqqqqqpgqhv7hdq7fhuz6vn5t0f94fx8nz5celdpg6avs38q8vn",
)

JEX_STABLE_POOLS = ("erd1qqqqqqqqqqqqqpgqahfmv4apudlzgawgcvp2zr65dtufqfmy6avsazkewu",)
